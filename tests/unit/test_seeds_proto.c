/* Replays tests/fuzz/{frame,rpc,jobspec,evidence}: each seed whole, cut short at every place, and with single bytes changed. Nothing may
 * crash, loop or leak, and every refusal has words. uses: proto */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/evidence_form.h"
#include "proto/frame.h"
#include "proto/jobspec.h"
#include "proto/rpc.h"

enum { SEED_MAX = 64 << 10, VARIANTS = 120 };

enum { LINE_MAX_BYTES = 64 };

/* The lines before the first that is too long, in two parts; the whole is taken if and only if there is none that is. */
static void feed_frame(const char *bytes, size_t len)
{
    size_t half = len / 2, at = 0, line_len;
    struct frame *f = frame_new(LINE_MAX_BYTES);
    struct err err = { 0 };
    const char *line, *end;
    int rc = 0;

    for (int part = 0; part < 2; part++) {
        rc = frame_push(f, bytes + (part ? half : 0), part ? len - half : half, &err);
        while ((line = frame_next(f, &line_len))) {
            end = memchr(bytes + at, '\n', len - at);
            assert_non_null(end);
            size_t want = (size_t)(end - (bytes + at)), shown = want > 0 && end[-1] == '\r' ? want - 1 : want;

            assert_true(want <= LINE_MAX_BYTES && line_len == shown && line[line_len] == '\0');
            assert_memory_equal(line, bytes + at, shown);
            at += want + 1;
        }
    }
    end = memchr(bytes + at, '\n', len - at);
    if ((size_t)((end ? end : bytes + len) - (bytes + at)) > LINE_MAX_BYTES) {
        assert_int_equal(rc, ERR_PROTO);
        assert_string_equal(err.msg, "line is longer than 64 bytes");
    } else {
        assert_int_equal(rc, 0);
        assert_null(end); /* what is left is the beginning of a line */
    }
    frame_free(f);
}

static bool is_json(const char *bytes, size_t len, size_t flags)
{
    json_t *root = json_loadb(bytes, len, flags, NULL);

    json_decref(root);
    return root != NULL;
}

static void feed_rpc(const char *bytes, size_t len)
{
    struct rpc_request req;
    struct err err = { 0 }, told = { 0 };
    json_t *result = NULL;
    int code = 0, rc = rpc_request_parse(bytes, len, &req, &code, &err);
    long id;

    if (rc == 0) {
        assert_true(req.id && req.method && json_is_object(req.params) && (json_is_integer(req.id) || json_is_string(req.id)));
    } else {
        assert_int_equal(code == RPC_PARSE, !is_json(bytes, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY));
        assert_true(code == RPC_PARSE || code == RPC_INVALID || code == RPC_BAD_PARAMS);
        assert_true(rc == (code == RPC_BAD_PARAMS ? ERR_INPUT : ERR_PROTO) && err.code == rc && err.msg[0]);
    }
    char *line = rc ? rpc_error(req.id, code, &err, NULL) : rpc_result(req.id, json_object(), NULL);
    assert_non_null(line);
    assert_int_equal(rpc_reply_parse(line, strlen(line), &id, &result, &told) == 0, rc == 0 && json_is_integer(req.id));
    if (rc != 0) /* what was wrong arrives */
        assert_string_equal(told.msg, err.msg);
    json_decref(result);
    free(line);
    rpc_request_clear(&req);
    result = NULL;
    rc = rpc_reply_parse(bytes, len, &id, &result, &err);
    if (rc == 0)
        assert_non_null(result);
    else
        assert_true(!result && err.code == rc && err.msg[0] && (is_json(bytes, len, 0) || rc == ERR_PROTO));
    json_decref(result);
}

static void feed_jobspec(const char *bytes, size_t len)
{
    json_t *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, NULL), *full, *again;
    struct jobspec *s = NULL;
    struct err err = { 0 };
    int rc;

    if (!root)
        return;
    if (json_is_object(root))
        jobspec_absolute(root, "/home/u", &err);
    rc = jobspec_parse(root, &s, &err);
    if (rc == 0) {
        full = jobspec_json(s);
        assert_non_null(full);
        jobspec_free(s);
        assert_int_equal(jobspec_parse(full, &s, &err), 0); /* what we write we read, and write again */
        again = jobspec_json(s);
        assert_true(json_equal(full, again));
        jobspec_free(s);
        json_decref(full);
        json_decref(again);
    } else { /* the key in question is named, and first */
        assert_true(rc == ERR_INPUT && err.code == rc && !s);
        assert_true(strncmp(err.msg, err.field, strlen(err.field)) == 0 && strlen(err.msg) > strlen(err.field) + 4);
    }
    json_decref(root);
}

/* The head of evidence. What is taken is in bounds, and what we write of it we read. */
static void feed_evidence(const char *bytes, size_t len)
{
    struct evidence_head *h = NULL, *again = NULL;
    struct err err = { 0 };
    char *text;
    int rc = evidence_head_parse(bytes, len, &h, &err);

    if (rc == 0) {
        assert_int_equal(evidence_head_check(h, &err), 0);
        assert_int_equal(evidence_head_text(h, &text, &len, &err), 0);
        assert_int_equal(evidence_head_parse(text, len, &again, &err), 0);
        assert_true(evidence_head_equal(h, again));
        free(text);
        free(again);
        free(h);
    } else {
        assert_true((rc == ERR_INPUT || rc == ERR_UNSUPPORTED) && err.code == rc && !h);
        assert_true(strncmp(err.msg, err.field, strlen(err.field)) == 0 && err.msg[0]);
        assert_int_equal(err.field[0] == '\0', !is_json(bytes, len, JSON_REJECT_DUPLICATES));
    }
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

static void evidence_heads(void **state)
{
    (void)state;
    replay("evidence", feed_evidence);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(frames), cmocka_unit_test(messages), cmocka_unit_test(job_files),
                                        cmocka_unit_test(evidence_heads) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
