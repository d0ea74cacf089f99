/* Replays tests/fuzz/{frame,rpc,jobspec}: each seed whole, cut short at every place, and with single bytes changed. Nothing may
 * crash, loop or leak, and every refusal has words. uses: proto */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/frame.h"
#include "proto/jobspec.h"
#include "proto/rpc.h"

enum { SEED_MAX = 64 << 10, VARIANTS = 120 };

static void feed_frame(const char *bytes, size_t len)
{
    size_t half = len / 2, out = 0, line_len;
    struct frame *f = frame_new(64);
    struct err err = { 0 };
    const char *line;

    for (int part = 0; part < 2; part++) {
        int rc = frame_push(f, bytes + (part ? half : 0), part ? len - half : half, &err);

        assert_true(rc == 0 || err.msg[0]);
        while ((line = frame_next(f, &line_len))) {
            assert_true(line_len <= 64 && line[line_len] == '\0');
            out += line_len + 1;
        }
    }
    assert_true(out <= len);
    frame_free(f);
}

static void feed_rpc(const char *bytes, size_t len)
{
    struct rpc_request req;
    struct err err = { 0 };
    json_t *result = NULL;
    int code = 0, rc = rpc_request_parse(bytes, len, &req, &code, &err);
    long id;

    assert_true(rc == 0 ? req.id && req.method && json_is_object(req.params) : code != 0 && err.msg[0]);
    char *line = rc ? rpc_error(req.id, code, &err, NULL) : rpc_result(req.id, json_object(), NULL);
    assert_non_null(line);
    free(line);
    rpc_request_clear(&req);
    rc = rpc_reply_parse(bytes, len, &id, &result, &err);
    assert_true(rc == 0 ? result != NULL : err.msg[0]);
    json_decref(result);
}

static void feed_jobspec(const char *bytes, size_t len)
{
    json_t *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, NULL), *full;
    struct jobspec *s = NULL;
    struct err err = { 0 };

    if (!root)
        return;
    if (json_is_object(root))
        jobspec_absolute(root, "/home/u", &err);
    if (jobspec_parse(root, &s, &err) == 0) {
        full = jobspec_json(s);
        assert_non_null(full);
        jobspec_free(s);
        assert_int_equal(jobspec_parse(full, &s, &err), 0); /* what we write we read */
        jobspec_free(s);
        json_decref(full);
    } else {
        assert_true(err.msg[0]);
    }
    json_decref(root);
}

static void vary(void (*feed)(const char *, size_t), const char *seed, size_t len)
{
    size_t stride = len / VARIANTS + 1;
    char *copy = malloc(len + 1); /* exact size, so that the sanitizer sees a byte too far */

    feed(seed, len);
    for (size_t cut = 0; cut < len; cut += stride) {
        char *part = malloc(cut + 1);

        memcpy(part, seed, cut);
        feed(part, cut);
        free(part);
    }
    for (size_t at = 0; at < len; at += stride)
        for (int k = 0; k < 4; k++) {
            memcpy(copy, seed, len);
            copy[at] = "\0\"\n\xff"[k];
            feed(copy, len);
        }
    free(copy);
}

static void replay(const char *name, void (*feed)(const char *, size_t))
{
    char path[400], *seed = malloc(SEED_MAX);
    struct dirent *entry;
    int count = 0;

    snprintf(path, sizeof path, "tests/fuzz/%s", name);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "tests/fuzz/%s/%s", name, entry->d_name);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        vary(feed, seed, fread(seed, 1, SEED_MAX, f));
        fclose(f);
        count++;
    }
    closedir(dir);
    free(seed);
    assert_true(count > 5);
}

static void frames(void **state)
{
    (void)state;
    replay("frame", feed_frame);
}

static void messages(void **state)
{
    (void)state;
    replay("rpc", feed_rpc);
}

static void job_files(void **state)
{
    (void)state;
    replay("jobspec", feed_jobspec);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(frames), cmocka_unit_test(messages), cmocka_unit_test(job_files) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
