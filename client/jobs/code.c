#include "client/jobs/code.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/base/print.h"
#include "proto/host/sha256.h"

enum { HEX = 2 * SHA256_BYTES + 1, BYTES_MAX = 64 << 20 /* of a script, or of all changes, that are hashed */ };

struct hex {
    char s[HEX];
};

static struct hex hash(const char *data, size_t len)
{
    unsigned char digest[SHA256_BYTES];
    struct hex ret;

    sha256(data, len, digest);
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(ret.s + 2 * i, 3, "%02x", digest[i]);
    return ret;
}

/* Reads at most BYTES_MAX bytes, and closes fd. The caller frees. NULL: it cannot be read. */
static char *read_all(int fd, size_t *ret_len)
{
    size_t room = 1 << 16, len = 0;
    char *text = malloc(room), *more;
    ssize_t n = 1;

    while (text && len < BYTES_MAX && (n = read(fd, text + len, room - len - 1)) > 0) {
        len += (size_t)n;
        if (len + 1 < room)
            continue;
        more = realloc(text, room *= 2);
        if (!more)
            break;
        text = more;
    }
    close(fd);
    if (text && n >= 0) {
        text[len] = '\0';
        *ret_len = len;
        return text;
    }
    free(text);
    return NULL;
}

/* Starts git in the folder. Returns a descriptor with its output, or -1. */
static int start_git(const char *folder, char *const *words, pid_t *ret_pid)
{
    char *argv[12] = { (char *)"git", (char *)"-C", (char *)folder, (char *)"-c", (char *)"core.fsmonitor=false" };
    int pipes[2], n = 5;

    while (*words && n < 11)
        argv[n++] = *words++;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return -1;
    *ret_pid = fork();
    if (*ret_pid == 0) {
        int null = open("/dev/null", O_RDWR);

        dup2(null, 0);
        dup2(pipes[1], 1);
        dup2(null, 2);
        setenv("GIT_OPTIONAL_LOCKS", "0", 1);
        execvp("git", argv);
        _exit(127);
    }
    close(pipes[1]);
    if (*ret_pid > 0)
        return pipes[0];
    close(pipes[0]);
    return -1;
}

/* The output of git. The caller frees. NULL: git failed. */
static char *run_git(const char *folder, char *const *words, size_t *ret_len)
{
    pid_t pid = 0;
    int status = -1, fd = start_git(folder, words, &pid);
    char *text = fd < 0 ? NULL : read_all(fd, ret_len);

    if (pid > 0)
        waitpid(pid, &status, 0);
    if (status == 0)
        return text;
    free(text);
    return NULL;
}

static void record_git(json_t *program, const char *folder)
{
    static char commit[] = "rev-parse", verify[] = "--verify", head[] = "HEAD", diff[] = "diff", plain[] = "--no-ext-diff",
                bytes[] = "--no-textconv", binary[] = "--binary";
    char *const ask[] = { commit, verify, head, NULL }, *const changes[] = { diff, head, plain, bytes, binary, NULL };
    size_t len = 0;
    char *text = run_git(folder, ask, &len);

    if (text)
        text[strcspn(text, "\n")] = '\0';
    if (!text || !text[0] || text[strspn(text, "0123456789abcdef")]) {
        free(text);
        return;
    }
    json_object_set_new(program, "commit", json_string(text));
    free(text);
    text = run_git(folder, changes, &len);
    if (text && len > 0)
        json_object_set_new(program, "changes", json_string(hash(text, len).s));
    free(text);
}

static bool hash_file(const char *path, struct hex *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    size_t len = 0;
    char *text;

    if (fd < 0)
        return false;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size >= BYTES_MAX) {
        close(fd);
        return false;
    }
    text = read_all(fd, &len);
    if (text)
        *ret = hash(text, len);
    free(text);
    return text != NULL;
}

/* The script is the first word of the command that names a file from the folder. */
static void record_script(json_t *program, const char *folder)
{
    const json_t *word;
    char path[PATH_MAX];
    struct hex script;
    size_t i;

    json_array_foreach (json_object_get(program, "command"), i, word) {
        const char *text = json_string_value(word);

        if (!text || (i == 0 && !strchr(text, '/')) ||
            snprintf(path, sizeof path, "%s%s%s", text[0] == '/' ? "" : folder, text[0] == '/' ? "" : "/", text) >= (int)sizeof path)
            continue;
        if (i == 0 && (strstr(text, "python") || strstr(text, "/bash") || strstr(text, "/sh")))
            continue;
        if (!hash_file(path, &script))
            continue;
        json_object_set_new(program, "script", json_string(script.s));
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
