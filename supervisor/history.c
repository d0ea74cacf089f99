#include "supervisor/history.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
#include "supervisor/going.h"
#include "supervisor/job.h"
#include "supervisor/ranks/log.h"
#include "supervisor/spool/spool.h"

/* A job of another database had this folder before. Its reports and tiers are kept under other names. */
static int set_aside(const char *store_id, struct err *err)
{
    static const char *const names[] = { "spool.0", "spool.1", "tiers" };
    char to[SPOOL_STORE_ID + 16];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(to, sizeof to, "%s.%s", names[i], store_id);
        if (rename(names[i], to) < 0 && errno != ENOENT)
            return err_sys(err, "rename '%s' to '%s'", names[i], to);
    }
    job_log("the spool was of another database (store %s): kept as spool.0.%s and spool.1.%s", store_id, store_id, store_id);
    return 0;
}

int history_open(const struct job_options *o, struct spool **ret, struct err *err)
{
    const char *ours = o->store_id, *known;
    int rc = spool_open(".", SPOOL_SEGMENT_BYTES, o->last_seq, ret, err);

    if (rc < 0 || !ours)
        return rc;
    known = spool_store_id(*ret);
    if (known[0] && strcmp(known, ours) != 0) {
        rc = set_aside(known, err);
        spool_close(*ret);
        *ret = NULL;
        if (rc == 0)
            rc = spool_open(".", SPOOL_SEGMENT_BYTES, o->last_seq, ret, err);
        if (rc < 0)
            return rc;
    }
    return spool_store_id(*ret)[0] ? 0 : spool_set_store_id(*ret, ours, err);
}

/* Parses a record that tells of an attempt; NULL for the many others. Our own records begin with their type; records of
 * ranks need not. */
static json_t *parse_milestone(const char *text, const char **ret_type)
{
    json_t *rec = NULL;

    if (strncmp(text, "{\"type\":\"attempt\"", 17) == 0 || strncmp(text, "{\"type\":\"end", 12) == 0 || strstr(text, "\"checkpoint\""))
        rec = json_loads(text, 0, NULL);
    *ret_type = json_string_value(json_object_get(rec, "type"));
    if (*ret_type)
        return rec;
    json_decref(rec);
    return NULL;
}

static const char *string_of(const json_t *rec, const char *key)
{
    const char *s = json_string_value(json_object_get(rec, key));

    return s ? s : "";
}

static void recall(struct going *g, const json_t *rec, const char *type, uint64_t seq, uint64_t last_seq)
{
    static const char *const types[] = { [GOING_RECORD_ATTEMPT] = "attempt",
                                         [GOING_RECORD_ENDED] = "ended",
                                         [GOING_RECORD_END] = "end",
                                         [GOING_RECORD_CHECKPOINT] = "checkpoint" };
    struct going_past past = { .seq = seq, .outcome = string_of(rec, "outcome"), .class = string_of(rec, "class") };

    for (int i = GOING_RECORD_ATTEMPT; rec && i <= GOING_RECORD_CHECKPOINT; i++)
        if (strcmp(type, types[i]) == 0)
            past.type = (enum going_record)i;
    past.attempt = (int)json_integer_value(json_object_get(rec, "attempt"));
    past.step = json_integer_value(json_object_get(rec, past.type == GOING_RECORD_ATTEMPT ? "resume_step" : "step"));
    going_recall(g, &past, last_seq);
}

int history_read(struct spool *s, uint64_t last_seq, struct going *g, struct err *err)
{
    struct spool_cursor c;
    const char *text;
    uint64_t seq;
    size_t len;
    int rc = spool_seek(s, 0, &c, err);

    while (rc == 0 && (rc = spool_next(s, &c, &text, &len, &seq, err)) == 1) {
        const char *type;
        json_t *rec = parse_milestone(text, &type);

        recall(g, rec, type, seq, last_seq);
        json_decref(rec);
        rc = 0;
    }
    return rc;
}
