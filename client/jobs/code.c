#include "client/jobs/code.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/base/print.h"
#include "proto/host/sha256.h"

enum { BYTES_MAX = 64 << 20 /* of a script, or of all changes, that are hashed */ };
#define GIT   "GIT_OPTIONAL_LOCKS=0 exec git -C \"$DETD_FOLDER\" -c core.fsmonitor=false "
#define QUIET " </dev/null 2>/dev/null"

/* Reads at most BYTES_MAX bytes. The caller frees. NULL: out of memory, or they are more. */
static char *read_all(FILE *f, size_t *ret_len)
{
    size_t room = 1 << 16, len = 0;
    char *text = malloc(room), *more;

    while (text && (len += fread(text + len, 1, room - len - 1, f)) + 1 == room) {
        more = room < BYTES_MAX ? realloc(text, room *= 2) : NULL;
        if (!more)
            free(text);
        text = more;
    }
    if (text)
        text[len] = '\0';
    *ret_len = len;
    return text;
}

static void put_hash(json_t *program, const char *key, const char *data, size_t len)
{
    unsigned char digest[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];

    sha256(data, len, digest);
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    json_object_set_new(program, key, json_string(hex));
}

/* The output of git. The caller frees. NULL: git failed. */
static char *run_git(const char *command, size_t *ret_len)
{
    FILE *f = popen(command, "re");
    char *text = f ? read_all(f, ret_len) : NULL;

    if (f && pclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

static void record_git(json_t *program, const char *folder)
{
    size_t len = 0;
    char *text;

    setenv("DETD_FOLDER", folder, 1);
    text = run_git(GIT "rev-parse --verify HEAD" QUIET, &len);
    if (text && len > 1) {
        json_object_set_new(program, "commit", json_stringn(text, strcspn(text, "\n")));
        free(text);
        text = run_git(GIT "diff HEAD --no-ext-diff --no-textconv --binary" QUIET, &len);
        if (text && len > 0)
            put_hash(program, "changes", text, len);
    }
    free(text);
}

/* False: there is no such file. */
static bool record_file(json_t *program, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    struct stat st;
    size_t len = 0;
    char *text = f && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read_all(f, &len) : NULL;
    bool good = text;

    if (good)
        put_hash(program, "script", text, len);
    free(text);
    if (f)
        fclose(f);
    return good;
}

/* The script is the first word of the command that names a file from the folder. */
static void record_script(json_t *program, const char *folder)
{
    const json_t *word;
    char path[PATH_MAX];
    size_t i;

    json_array_foreach (json_object_get(program, "command"), i, word) {
        const char *text = json_string_value(word);

        if (!text || (i == 0 && (!strchr(text, '/') || strstr(text, "python") || strstr(text, "/bash") || strstr(text, "/sh"))))
            continue; /* an interpreter */
        if (snprintf(path, sizeof path, "%s%s%s", text[0] == '/' ? "" : folder, text[0] == '/' ? "" : "/", text) < (int)sizeof path &&
            record_file(program, path))
            return;
    }
}

void code_record(json_t *spec)
{
    json_t *program = json_object_get(spec, "program");
    const char *folder = text_of(program, "directory");

    json_object_del(program, "commit");
    json_object_del(program, "changes");
    json_object_del(program, "script");
    record_git(program, folder);
    record_script(program, folder);
}
