#include "client/proof/verdict.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/print.h"
#include "client/base/run.h"

enum { EVENTS_MAX = 100 }; /* a verify job has few */

static bool is(const struct verdict *v, const char *outcome)
{
    return strcmp(v->outcome, outcome) == 0;
}

/* ---- the job's findings, in the words of the trainer ---- */

static void take_reason(const json_t *job, struct verdict *v)
{
    int end = 0;

    v->state = v->outcome = text_of(job, "state");
    v->reason = text_of(job, "reason");
    if (strcmp(v->state, "completed") == 0 && sscanf(v->reason, "equal: steps %lld .. %lld%n", &v->first, &v->last, &end) == 2)
        v->outcome = "equal";
    else if (strcmp(v->state, "failed") == 0 && sscanf(v->reason, "step %lld differs: %n", &v->step, &end) == 1 && end > 0)
        v->outcome = "differs";
    v->rest = v->reason + end;
}

/* Takes the identity from the newest attempt that told one. */
static int take_identity(struct context *ctx, struct verdict *v)
{
    json_t *result, *event;
    size_t i;
    int rc = call_patiently(ctx, "event.query", json_pack("{s:I, s:i}", "id", (json_int_t)v->id, "limit", EVENTS_MAX), &result);

    if (rc)
        return rc;
    json_array_foreach (json_object_get(result, "events"), i, event) {
        const char *text = text_of(event, "text");

        if (!v->identity && strcmp(text_of(event, "kind"), "identity") == 0 && strstr(text, "in the run that is verified"))
            v->identity = strdup(text);
    }
    json_decref(result);
    return 0;
}

int verdict_take(struct context *ctx, const json_t *job, struct verdict *v)
{
    take_reason(job, v);
    v->identity = NULL;
    return take_identity(ctx, v);
}

void verdict_free(struct verdict *v)
{
    free(v->identity);
    v->identity = NULL;
}

int verdict_code(const struct verdict *v)
{
    if (is(v, "equal"))
        return CODE_DONE;
    if (is(v, "differs"))
        return CODE_DIFFERS;
    return strcmp(v->state, "cancelled") == 0 ? CODE_JOB_CANCELLED : CODE_JOB_FAILED;
}

/* ---- output ---- */

static long long steps_of(const struct run *r)
{
    return json_integer_value(json_object_get(json_object_get(r->spec, "train"), "steps"));
}

static json_t *verdict_json(const struct verdict *v)
{
    json_t *of = json_pack("{s:o, s:s, s:I, s:I}", "job", v->of->id ? json_integer(v->of->id) : json_null(), "dir", v->of->dir, "steps",
                           (json_int_t)steps_of(v->of), "recorded", (json_int_t)v->recorded);
    json_t *out = json_pack("{s:I, s:o, s:s, s:s, s:s?}", "job", (json_int_t)v->id, "of", of, "outcome", v->outcome, "reason", v->reason,
                            "identity", v->identity);

    if (is(v, "equal")) {
        json_object_set_new(out, "first", json_integer(v->first));
        json_object_set_new(out, "last", json_integer(v->last));
        json_object_set_new(out, "compared", json_string(*v->rest ? "data, losses" : "all"));
    } else if (is(v, "differs")) {
        json_object_set_new(out, "step", json_integer(v->step));
    }
    return out;
}

void verdict_print_json(const struct verdict *v)
{
    json_t *out = verdict_json(v);

    print_json(out);
    json_decref(out);
}

static void print_outcome(const struct verdict *v)
{
    if (is(v, "equal"))
        printf("equal: steps %lld .. %lld of ", v->first, v->last);
    else
        printf("differs: step %lld of ", v->step);
    print_clean(stdout, v->of->name);
    fputs(is(v, "equal") ? "" : ": ", stdout);
    print_clean(stdout, v->rest);
    putchar('\n');
}

static void print_none(const struct verdict *v)
{
    printf("not compared: job %lld ", (long long)v->id);
    print_clean(stdout, v->state);
    fputs(*v->reason ? ": " : "", stdout);
    print_clean(stdout, v->reason);
    putchar('\n');
}

void verdict_print(const struct verdict *v)
{
    (is(v, "equal") || is(v, "differs") ? print_outcome : print_none)(v);
    if (v->identity) {
        print_clean(stdout, v->identity);
        putchar('\n');
    }
    if (v->recorded < steps_of(v->of))
        printf("of %lld steps, evidence of %lld\n", steps_of(v->of), (long long)v->recorded);
}
