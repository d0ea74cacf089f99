#include "proto/err.h" /* SPDX-License-Identifier: Apache-2.0 */
#undef err_set
#undef err_field
#undef err_sys

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set(struct err *err, int code, const char *field, const char *fmt, va_list ap)
{
    if (!err)
        return;
    err->code = code;
    snprintf(err->field, sizeof err->field, "%s", field);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set(err, code, "", fmt, ap);
    va_end(ap);
    return code;
}

int err_field(struct err *err, int code, const char *field, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set(err, code, field, fmt, ap);
    va_end(ap);
    return code;
}

int err_sys(struct err *err, const char *fmt, ...)
{
    int saved = errno;
    va_list ap;

    va_start(ap, fmt);
    set(err, -saved, "", fmt, ap);
    va_end(ap);
    if (err) {
        size_t used = strlen(err->msg);

        snprintf(err->msg + used, sizeof err->msg - used, ": %s", strerror(saved));
    }
    return -saved;
}

void err_prefix(struct err *err, const char *fmt, ...)
{
    char old[sizeof err->msg];
    va_list ap;

    if (!err)
        return;
    memcpy(old, err->msg, sizeof old);
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    size_t used = strlen(err->msg);
    snprintf(err->msg + used, sizeof err->msg - used, ": %s", old);
}

bool err_is_system(const struct err *err)
{
    return err->code < 0 && err->code > ERR_PROTO;
}

bool err_is_shortage(const struct err *err)
{
    static const int codes[] = { ENOSPC, EDQUOT, EFBIG, ENOMEM, ENFILE, EMFILE, EAGAIN, ETXTBSY };

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (err->code == -codes[i])
            return true;
    return false;
}

const char *err_name(int code)
{
    switch (code) {
#define X(name, number, text) \
    case number:              \
        return #name;
        ERR_MAP(X)
#undef X
    default:
        return NULL;
    }
}
