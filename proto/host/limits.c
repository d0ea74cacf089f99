#include "proto/host/limits.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>
#include <sys/resource.h>

static const struct {
    const char *name;
    int resource;
} all[] = { { "as", RLIMIT_AS },       { "core", RLIMIT_CORE },   { "cpu", RLIMIT_CPU },         { "data", RLIMIT_DATA },
            { "fsize", RLIMIT_FSIZE }, { "locks", RLIMIT_LOCKS }, { "memlock", RLIMIT_MEMLOCK }, { "nofile", RLIMIT_NOFILE },
            { "nproc", RLIMIT_NPROC }, { "stack", RLIMIT_STACK } };

enum { ALL = sizeof all / sizeof *all };

json_t *limits_now(void)
{
    json_t *ret = json_object();
    struct rlimit r;

    for (int i = 0; i < ALL; i++)
        if (getrlimit(all[i].resource, &r) == 0)
            json_object_set_new(ret, all[i].name, json_real(r.rlim_cur == RLIM_INFINITY ? -1 : (double)r.rlim_cur));
    return ret;
}

void limits_set(const json_t *limits)
{
    for (int i = 0; i < ALL; i++) {
        const json_t *value = json_object_get(limits, all[i].name);
        double number = json_number_value(value);
        struct rlimit r;

        if (!value || getrlimit(all[i].resource, &r) < 0)
            continue;
        r.rlim_cur = number >= 0 && number < (double)r.rlim_max ? (rlim_t)number : r.rlim_max;
        setrlimit(all[i].resource, &r);
    }
}

const char *limits_unknown(const json_t *limits)
{
    const char *name;
    json_t *value;
    int i;

    json_object_foreach ((json_t *)limits, name, value) {
        for (i = 0; i < ALL && strcmp(all[i].name, name) != 0;)
            i++;
        if (i == ALL)
            return name;
    }
    return NULL;
}
