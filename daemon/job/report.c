#include "daemon/job/report.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/job/job.h"
#include "proto/clean.h"
#include "proto/err.h"
#include "proto/identity.h"
#include "proto/record.h"
#include "proto/tier.h"

static int bad(struct err *err, const char *key, const char *what)
{
    return err_field(err, ERR_PROTO, key, "record: %s: %s", key, what);
}

static void text_of(const json_t *rec, const char *key, char *to, size_t size)
{
    const char *s = json_string_value(json_object_get(rec, key));

    clean_copy(to, size, s ? s : "");
}

static double real_of(const json_t *rec, const char *key, double otherwise)
{
    const json_t *v = json_object_get(rec, key);

    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* Reads a member that only informs: anything but a positive count gives 0. */
static int64_t size_of(const json_t *rec, const char *key)
{
    const json_t *v = json_object_get(rec, key);

    return json_is_integer(v) && json_integer_value(v) > 0 ? json_integer_value(v) : 0;
}

static int count_of(const json_t *rec, const char *key, int64_t *ret, struct err *err)
{
    const json_t *v = json_object_get(rec, key);

    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > RECORD_MAX_COUNT)
        return bad(err, key, "must be an integer, 0 or more");
    *ret = json_integer_value(v);
    return 0;
}

static int tier_of(const json_t *rec, int *ret, struct err *err)
{
    *ret = tier_parse(json_string_value(json_object_get(rec, "tier")));
    return *ret < 0 ? bad(err, "tier", "must be off, rerun or world") : 0;
}

static double value_of(const json_t *v)
{
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static int add_values(struct report *r, const json_t *values, bool pairs, const char *key, struct err *err)
{
    const char *name;
    json_t *v;

    json_object_foreach ((json_t *)values, name, v) {
        struct report_value *to = &r->values[r->count];

        if (!name[0] || strlen(name) > REPORT_NAME_MAX)
            return bad(err, key, "names must have 1 to 63 bytes");
        if (pairs && json_array_size(v) != 2)
            return bad(err, key, "a term must be [num, den]");
        clean_copy(to->name, sizeof to->name, name);
        to->num = value_of(pairs ? json_array_get(v, 0) : v);
        to->den = pairs ? value_of(json_array_get(v, 1)) : 1.0;
        r->count++;
    }
    return 0;
}

static int parse_loss(struct report *r, const json_t *rec, struct err *err)
{
    const char *split = json_string_value(json_object_get(rec, "split"));
    int rc = count_of(rec, "step", &r->step, err);

    if (rc < 0)
        return rc;
    if (!split || (strcmp(split, "train") != 0 && strcmp(split, "val") != 0))
        return bad(err, "split", "must be train or val");
    rc = tier_of(rec, &r->tier, err);
    if (rc < 0)
        return rc;
    r->val = strcmp(split, "val") == 0;
    r->epoch = real_of(rec, "epoch", NAN);
    r->images_per_s = real_of(rec, "images_per_s", 0);
    return add_values(r, json_object_get(rec, "terms"), true, "terms", err);
}

static int parse_eval(struct report *r, const json_t *rec, struct err *err)
{
    int rc = count_of(rec, "step", &r->step, err);

    return rc < 0 ? rc : add_values(r, json_object_get(rec, "metrics"), false, "metrics", err);
}

static int parse_checkpoint(struct report *r, const json_t *rec, struct err *err)
{
    int rc = count_of(rec, "step", &r->step, err);

    text_of(rec, "path", r->text, sizeof r->text);
    r->bytes = size_of(rec, "bytes");
    r->val_loss = real_of(rec, "val_loss", NAN);
    r->best = json_is_true(json_object_get(rec, "best"));
    return rc;
}

static int parse_tier(struct report *r, const json_t *rec, struct err *err)
{
    int rc = count_of(rec, "step", &r->step, err);

    return rc < 0 ? rc : tier_of(rec, &r->tier, err);
}

static int parse_data(struct report *r, const json_t *rec, struct err *err)
{
    const char *first = json_string_value(json_array_get(json_object_get(rec, "bad"), 0));
    long long skipped = (long long)size_of(rec, "skipped");
    char boxes[64] = "";

    (void)err;
    if (json_object_get(rec, "boxes")) /* video frames have no boxes */
        snprintf(boxes, sizeof boxes, ", %lld boxes", (long long)size_of(rec, "boxes"));
    text_of(rec, "split", r->kind, sizeof r->kind);
    snprintf(r->text, sizeof r->text, "%s: %lld images%s, %lld bad records skipped%s%.600s", r->kind, (long long)size_of(rec, "images"),
             boxes, skipped, first ? "; first: " : "", first ? first : "");
    r->best = skipped == 0;
    return 0;
}

static int parse_event(struct report *r, const json_t *rec, struct err *err)
{
    (void)err;
    text_of(rec, "level", r->kind, sizeof r->kind);
    text_of(rec, "kind", r->label, sizeof r->label);
    text_of(rec, "text", r->text, sizeof r->text);
    r->tier = tier_parse(json_string_value(json_object_get(rec, "tier")));
    if (strcmp(r->label, REPORT_AUDIT) == 0)
        clean_copy(r->label, sizeof r->label, "event");
    if (strcmp(r->kind, "warning") != 0 && strcmp(r->kind, "error") != 0)
        clean_copy(r->kind, sizeof r->kind, "info");
    return 0;
}

static int parse_attempt(struct report *r, const json_t *rec, struct err *err)
{
    int64_t attempt = 0;
    int rc = count_of(rec, "attempt", &attempt, err);

    if (rc == 0 && (attempt < 1 || attempt > JOB_ATTEMPT_MAX))
        rc = bad(err, "attempt", "out of range");
    r->attempt = (int)attempt;
    r->first = json_is_true(json_object_get(rec, "first"));
    return rc < 0 ? rc : count_of(rec, "resume_step", &r->step, err);
}

/* Ignores an identity over the size limit; detd-job never forwards one. */
static int parse_identity(struct report *r, const json_t *rec, struct err *err)
{
    const json_t *identity = json_object_get(rec, "identity");
    int64_t attempt = 0;
    int rc = count_of(rec, "attempt", &attempt, err);

    r->attempt = attempt > JOB_ATTEMPT_MAX ? JOB_ATTEMPT_MAX : (int)attempt;
    if (rc == 0 && !json_is_object(identity))
        return bad(err, "identity", "must be an object");
    if (rc == 0 && json_dumpb(identity, r->json, IDENTITY_MAX_BYTES, JSON_COMPACT) > IDENTITY_MAX_BYTES)
        r->json[0] = '\0';
    return rc;
}

static int parse_outcome(struct report *r, const json_t *rec, struct err *err)
{
    text_of(rec, "outcome", r->kind, sizeof r->kind);
    text_of(rec, "class", r->label, sizeof r->label);
    text_of(rec, "reason", r->text, sizeof r->text);
    r->cpu_seconds = real_of(rec, "cpu_seconds", 0);
    r->seconds = real_of(rec, "seconds", 0);
    r->max_rss = size_of(rec, "max_rss");
    return r->kind[0] ? 0 : bad(err, "outcome", "missing");
}

static int parse_ended(struct report *r, const json_t *rec, struct err *err)
{
    int64_t attempt = 0;
    int rc = count_of(rec, "attempt", &attempt, err);

    r->attempt = attempt > JOB_ATTEMPT_MAX ? JOB_ATTEMPT_MAX : (int)attempt;
    return rc < 0 ? rc : parse_outcome(r, rec, err);
}

static int parse_end(struct report *r, const json_t *rec, struct err *err)
{
    static const char *const known[] = { "completed", "failed", "cancelled", "paused" };
    int64_t attempt = size_of(rec, "attempt");
    int rc = parse_outcome(r, rec, err);

    r->attempt = attempt > JOB_ATTEMPT_MAX ? JOB_ATTEMPT_MAX : (int)attempt;
    for (size_t i = 0; rc == 0 && i < sizeof known / sizeof *known; i++)
        if (strcmp(r->kind, known[i]) == 0)
            return 0;
    return rc < 0 ? rc : bad(err, "outcome", "must be completed, failed, cancelled or paused");
}

static const struct {
    const char *name;
    int (*parse)(struct report *r, const json_t *rec, struct err *err);
} types[] = {
    [REPORT_LOSS] = { "loss", parse_loss },
    [REPORT_EVAL] = { "eval", parse_eval },
    [REPORT_CHECKPOINT] = { "checkpoint", parse_checkpoint },
    [REPORT_TIER] = { "tier", parse_tier },
    [REPORT_DATA] = { "data", parse_data },
    [REPORT_EVENT] = { "event", parse_event },
    [REPORT_ATTEMPT] = { "attempt", parse_attempt },
    [REPORT_IDENTITY] = { "identity", parse_identity },
    [REPORT_ENDED] = { "ended", parse_ended },
    [REPORT_END] = { "end", parse_end },
};

static int parse_unknown(struct report *r, const char *name)
{
    r->type = REPORT_EVENT;
    clean_copy(r->kind, sizeof r->kind, "info");
    clean_copy(r->label, sizeof r->label, "unknown_record");
    snprintf(r->text, sizeof r->text, "record of type '%.60s' is not known to this detd", name);
    return 0;
}

int64_t report_bytes(const struct report *r)
{
    enum { VALUE = 64, ROW = 128 };

    if (r->type == REPORT_LOSS || r->type == REPORT_EVAL)
        return (int64_t)r->count * VALUE;
    return ROW + (int64_t)(strlen(r->kind) + strlen(r->label) + strlen(r->text) + (r->json ? strlen(r->json) : 0));
}

int report_rows(const struct report *r)
{
    return r->count > 1 ? r->count : 1;
}

bool report_is_vital(const struct report *r)
{
    return r->type == REPORT_ATTEMPT || r->type == REPORT_ENDED || r->type == REPORT_END || r->type == REPORT_CHECKPOINT;
}

int report_parse(const json_t *rec, int64_t job, int64_t seq, double now, struct report **ret, struct err *err)
{
    const char *name = json_string_value(json_object_get(rec, "type"));
    size_t room = json_object_size(json_object_get(rec, "terms")) + json_object_size(json_object_get(rec, "metrics"));
    size_t bytes = json_object_get(rec, "identity") ? IDENTITY_MAX_BYTES + 1 : 0;
    struct report *r;
    int rc = -1;

    if (!name)
        return bad(err, "type", "missing");
    if (room > REPORT_MAX_TERMS)
        return bad(err, "terms", "more than 256");
    r = calloc(1, sizeof *r + room * sizeof *r->values + bytes);
    if (!r)
        return err_set(err, -ENOMEM, "out of memory for a record");
    r->json = bytes ? (char *)&r->values[room] : NULL;
    r->job = job;
    r->seq = seq;
    r->time = real_of(rec, "time", now);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) {
            r->type = (enum report_type)i;
            rc = types[i].parse(r, rec, err);
            goto out;
        }
    rc = parse_unknown(r, name);
out:
    if (rc == 0)
        *ret = r;
    else
        free(r);
    return rc;
}

int report_left_out(const char *why, int64_t job, int64_t seq, double now, struct report **ret, struct err *err)
{
    struct report *r = calloc(1, sizeof *r);

    if (!r)
        return err_set(err, -ENOMEM, "out of memory for a record");
    *r = (struct report){ .type = REPORT_EVENT, .job = job, .seq = seq, .time = now, .kind = "error", .label = "supervisor" };
    snprintf(r->text, sizeof r->text, "report %lld is left out: %s", (long long)seq, why);
    *ret = r;
    return 0;
}
