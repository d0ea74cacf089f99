#include "worker/evidence/recorder.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "proto/evidence/evidence.h"
#include "proto/evidence/evidence_carry.h"
#include "proto/job/jobspec.h"
#include "worker/checkpoint/owner.h"
#include "worker/checkpoint/state.h"
#include "worker/core/device.h"
#include "worker/core/shards.h"
#include "worker/data/make/batch.h"
#include "worker/evidence/replay.h"
#include "worker/evidence/tensors.h"
#include "worker/models/model.h"
#include "worker/report/report.h"

enum { TEXT_BYTES = 256 };

struct recorder {
    struct recorder_options opt;
    bool on;
    struct evidence_head head;
    struct tensors *tensors;   /* NULL: level is losses */
    struct hash128 *sample[2]; /* [shards], those of this rank, in even and odd steps: a step is recorded while the next is computed */
    struct proof proof;
    struct replay *other; /* the run to verify; NULL: this job verifies nothing */

    /* Rank 0. */
    struct evidence_log *log;
    struct replay *before;         /* evidence of earlier attempts; NULL: nothing */
    struct evidence_record record; /* still to be written, with its detail; step 0: nothing */
    struct evidence_detail detail;
    bool told, full;     /* told: a step that differs was reported; full: evidence cannot be written */
    int64_t first, last; /* range of verified steps; 0: nothing yet */
    char verdict[160];
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_DEVICE, "out of memory: evidence");
}

/* ---- the head ---- */

static int make_head(struct recorder *r, struct err *err)
{
    const struct model *m = r->opt.model;
    struct evidence_head *h = &r->head;
    int rc = owner_keys(r->opt.spec, &h->spec, err);

    h->tensors = strcmp(r->opt.spec->run_evidence, "tensors") == 0;
    h->shards = r->opt.shards;
    h->data = r->opt.data;
    if (rc < 0 || !h->tensors)
        return rc;
    h->tensor = calloc((size_t)m->nparams, sizeof *h->tensor);
    if (!h->tensor)
        return no_memory(err);
    h->ntensors = m->nparams;
    for (int i = 0; i < m->nparams; i++) {
        snprintf(h->tensor[i].name, sizeof h->tensor[i].name, "%s", m->params[i]->name);
        h->tensor[i].count = (int64_t)m->params[i]->count;
        h->tensor[i].gradient = param_trainable(m->params[i]);
    }
    return 0;
}

/* ---- opening ---- */

/* Opens the run to verify. It must not be this job: its records would be overwritten before they are read. */
static int open_other(struct recorder *r, struct err *err)
{
    const char *folder = r->opt.spec->verify_evidence;
    struct stat own, other;
    struct err why;
    int rc = replay_open(folder, &r->head, &r->other, err);

    if (rc >= 0 && stat(folder, &other) == 0 && stat(r->opt.job_dir, &own) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino)
        rc = err_set(err, ERR_INPUT, "'%s' is this job's own folder", folder);
    if (rc >= 0)
        return 0;
    why = *err;
    return err_field(err, ERR_INPUT, "errand.evidence", "errand.evidence: %s", why.msg);
}

static int fill(struct recorder *r, struct err *err)
{
    const struct recorder_options *o = &r->opt;
    int rc = make_head(r, err);

    for (int i = 0; i < 2 && rc >= 0; i++) {
        r->sample[i] = calloc((size_t)o->shards, sizeof *r->sample[i]);
        rc = r->sample[i] ? 0 : no_memory(err);
    }
    if (rc >= 0 && r->head.tensors) {
        r->proof.weight = calloc((size_t)o->model->nparams, sizeof *r->proof.weight);
        rc = r->proof.weight ? tensors_open(o->dev, o->model, o->gradients, o->optimizer, &r->tensors, err) : no_memory(err);
    }
    if (rc >= 0 && o->spec->verify_evidence)
        rc = open_other(r, err);
    return rc < 0 || o->rank != 0 ? rc : evidence_detail_new(&r->head, &r->detail, err);
}

int recorder_open(const struct recorder_options *opt, struct recorder **ret_recorder, struct err *err)
{
    struct recorder *r = calloc(1, sizeof *r);
    int rc;

    if (!r)
        return no_memory(err);
    r->opt = *opt;
    r->on = strcmp(opt->spec->run_evidence, "off") != 0;
    rc = r->on ? fill(r, err) : 0;
    if (rc < 0) {
        recorder_close(r);
        return rc;
    }
    *ret_recorder = r;
    return 0;
}

struct proof *recorder_proof(struct recorder *r)
{
    return r->on ? &r->proof : NULL;
}

/* ---- where it begins ---- */

static bool equal(const struct hash128 *a, const struct hash128 *b)
{
    return a->lane[0] == b->lane[0] && a->lane[1] == b->lane[1];
}

static int check_weights(struct recorder *r, int64_t step, struct err *err)
{
    const struct model *m = r->opt.model;
    const struct hash128 *now;
    int rc = tensors_begin(r->tensors, &now, err);

    for (int i = 0; i < m->nparams && rc >= 0 && r->proof.known; i++)
        if (!equal(&now[i], &r->proof.weight[i]))
            rc = err_set(err, ERR_CORRUPT, "checkpoint of step %lld: the content read from %s is not the content saved: the hashes differ",
                         (long long)step, m->params[i]->name);
    if (rc >= 0)
        memcpy(r->proof.weight, now, (size_t)m->nparams * sizeof *now);
    return rc;
}

/* Opens the log only after the checkpoint was accepted: a job whose checkpoint is refused must not lose its
 * evidence. */
static int open_files(struct recorder *r, int64_t step, struct err *err)
{
    bool anew = true;
    struct err none, why;

    if (r->proof.shorter && step > 0 && evidence_carry(r->opt.job_dir, &r->head, step, &why) < 0 &&
        report_event(r->opt.report, err, "warning", "evidence", "the evidence of the steps before the extension is lost: %s", why.msg) < 0)
        return err->code;
    if (evidence_log_open(r->opt.job_dir, &r->head, &r->log, &anew, &why) < 0)
        return report_event(r->opt.report, err, "warning", "evidence", "this attempt leaves no evidence: %s", why.msg);
    if (!anew && replay_open(r->opt.job_dir, &r->head, &r->before, &none) < 0)
        r->before = NULL; /* then earlier steps are not compared */
    if (anew && step > 0 && !r->other)
        return report_event(r->opt.report, err, "warning", "evidence",
                            "no evidence of earlier attempts with these keys, data and tensors is there: it begins at step %lld",
                            (long long)step + 1);
    return 0;
}

/* Sets the chain to continue. A checkpoint without a chain begins a new one. */
static int check_chain(struct recorder *r, int64_t step, struct err *err)
{
    struct evidence_record was;
    bool known = r->proof.known;

    if (step == 0 || !known || r->proof.shorter)
        r->proof.chain = evidence_start(&r->head);
    if (step == 0 || r->opt.rank != 0)
        return 0;
    if (r->proof.shorter) { /* the chain carried over from the shorter job continues */
        if (r->before && replay_record(r->before, step, &was))
            r->proof.chain = was.chain;
        return 0;
    }
    if (!known && r->other && replay_record(r->other, step, &was)) {
        r->proof.chain = was.chain;
        return 0;
    }
    if (!known)
        return report_event(r->opt.report, err, "warning", "evidence", "the checkpoint of step %lld has no evidence: its chain begins anew",
                            (long long)step);
    if (r->before && replay_record(r->before, step, &was) && !equal(&was.chain, &r->proof.chain))
        return report_event(r->opt.report, err, "warning", "evidence", "evidence.log has another chain at step %lld than the checkpoint",
                            (long long)step);
    return 0;
}

int recorder_begin(struct recorder *r, int64_t step, struct err *err)
{
    int rc;

    if (!r->on)
        return 0;
    r->proof.known = r->proof.known && step > 0;
    rc = r->tensors ? check_weights(r, step, err) : 0;
    if (rc >= 0 && r->other)
        rc = replay_has(r->other, step + 1, r->opt.spec->verify_to, err);
    if (rc >= 0 && r->opt.rank == 0)
        rc = open_files(r, step, err);
    if (rc >= 0)
        rc = check_chain(r, step, err);
    r->proof.known = true;
    return rc;
}

/* ---- a step, on every rank ---- */

/* The data that a rank sends: hashes of gradients and of weights, [ntensors] each, then of samples, [shards], only its
 * own filled in. */
static struct hash128 *gradients_in(const void *head)
{
    return (struct hash128 *)head;
}

static struct hash128 *weights_in(const struct recorder *r, const void *head)
{
    return gradients_in(head) + r->head.ntensors;
}

static struct hash128 *samples_in(const struct recorder *r, const void *head)
{
    return gradients_in(head) + 2 * r->head.ntensors;
}

size_t recorder_bytes(const struct recorder *r)
{
    return r->on ? (2 * (size_t)r->head.ntensors + (size_t)r->head.shards) * sizeof(struct hash128) : 0;
}

void recorder_batch(struct recorder *r, const struct batch *b)
{
    for (int s = 0; r->on && s < b->nshards; s++) {
        const struct shard_batch *shard = &b->shard[s];
        struct hash128 h = { { 0, 0 } };

        for (int i = 0; i < shard->n; i++)
            h = hash_fold(h, shard->hash[i]);
        r->sample[b->step & 1][shard->shard] = h;
    }
}

int recorder_send(struct recorder *r, struct err *err)
{
    return r->tensors ? tensors_send(r->tensors, err) : 0;
}

int recorder_take(struct recorder *r, int64_t step, void *ret, struct err *err)
{
    size_t bytes = (size_t)r->head.ntensors * sizeof(struct hash128);
    struct tensor_hashes mine;
    int rc = r->tensors ? tensors_take(r->tensors, &mine, err) : 0;

    if (!r->on || rc < 0)
        return rc;
    if (r->tensors) {
        memcpy(gradients_in(ret), mine.gradient, bytes);
        memcpy(weights_in(r, ret), mine.weight, bytes);
    }
    memcpy(samples_in(r, ret), r->sample[step & 1], (size_t)r->head.shards * sizeof(struct hash128));
    return 0;
}

/* ---- whether all ranks have the same weights ---- */

/* The rank that differs while all others agree. -1: cannot be told. */
static int odd_one(const struct recorder *r, const struct recorder_step *s)
{
    size_t bytes = (size_t)r->head.ntensors * sizeof(struct hash128);
    int odd = -1;

    for (int q = 0; q < r->opt.nranks && r->opt.nranks > 2; q++) {
        const void *mine = weights_in(r, s->heads[q]);
        int alike = 0;

        for (int other = 0; other < r->opt.nranks; other++)
            alike += memcmp(mine, weights_in(r, s->heads[other]), bytes) == 0;
        if (2 * alike > r->opt.nranks)
            continue;
        if (odd >= 0)
            return -1;
        odd = q;
    }
    return odd;
}

/* The first rank with weights unlike rank 0's; *ret_tensor is its first tensor that differs. 0: all ranks have equal
 * weights. */
static int other_weights(const struct recorder *r, const struct recorder_step *s, int *ret_tensor)
{
    const struct hash128 *first = weights_in(r, s->heads[0]);

    for (int q = 1; q < r->opt.nranks; q++)
        for (int i = 0; i < r->head.ntensors; i++)
            if (!equal(&first[i], &weights_in(r, s->heads[q])[i])) {
                *ret_tensor = i;
                return q;
            }
    return 0;
}

/* Called by the wrong rank: it knows its own device best. */
static int name_device(const struct recorder *r, int64_t step, struct err *err)
{
    struct device_info info;

    r->opt.dev->ops->info(r->opt.dev, &info);
    return report_event(r->opt.report, err, "error", "corruption",
                        "step %lld: rank %d, which computes on %s%s%s, has other weights than the rest", (long long)step, r->opt.rank,
                        info.name[0] ? info.name : "the CPU", info.uuid[0] ? " " : "", info.uuid);
}

static int compare_ranks(const struct recorder *r, const struct recorder_step *s, struct err *err)
{
    int code = strcmp(r->opt.spec->run_on_corruption, "fail") == 0 ? ERR_INPUT : ERR_DEVICE; /* ERR_DEVICE is retried */
    int tensor, other = other_weights(r, s, &tensor), odd;
    struct err ignored;

    if (other == 0)
        return 0;
    odd = odd_one(r, s);
    if (odd == r->opt.rank || (odd < 0 && (r->opt.rank == 0 || r->opt.rank == other)))
        name_device(r, s->step, &ignored);
    if (odd >= 0)
        return err_set(err, code, "step %lld: rank %d has other weights than the rest, first in %s: its device or memory fails",
                       (long long)s->step, odd, r->head.tensor[tensor].name);
    return err_set(err, code, "step %lld: ranks 0 and %d have different weights, first in %s: the device or memory of one of them fails",
                   (long long)s->step, other, r->head.tensor[tensor].name);
}

/* ---- the record, on rank 0 ---- */

static struct hash128 fold_all(const struct hash128 *h, int n)
{
    struct hash128 all = { { 0, 0 } };

    for (int i = 0; i < n; i++)
        all = hash_fold(all, h[i]);
    return all;
}

static void fill_shards(struct recorder *r, const struct recorder_step *s)
{
    size_t bytes = 2 * (size_t)r->opt.model->nterms * sizeof(double);

    for (int v = 0; v < r->head.shards; v++) {
        int owner = rank_of_shard(v, r->opt.nranks, r->head.shards);

        r->detail.data[v] = samples_in(r, s->heads[owner])[v];
        r->detail.loss[v] = hash_data(s->losses[v], bytes);
    }
}

/* In a skipped step the gradient hash is 0: it holds NaNs, with bits that depend on the device. */
static void fill_tensors(struct recorder *r, const struct recorder_step *s)
{
    for (int i = 0; i < r->head.ntensors; i++) {
        struct hash128 sum = { { 0, 0 } };

        for (int q = 0; q < r->opt.nranks && !s->skipped; q++) {
            const struct hash128 *part = &gradients_in(s->heads[q])[i];

            sum.lane[0] += part->lane[0];
            sum.lane[1] += part->lane[1];
        }
        r->detail.gradient[i] = sum;
        r->detail.weight[i] = weights_in(r, s->heads[0])[i];
    }
}

static void fill_state(struct recorder *r, const struct state *s)
{
    const double scores[] = { s->best, s->val_loss };
    const int64_t steps[] = { s->best_step, s->val_step };
    struct hash128 *to = r->detail.state;

    to[EVIDENCE_WINDOW] = hash_fold(hash_data(s->window.sum, 2 * (size_t)s->window.nterms * sizeof(double)),
                                    hash_data(&s->window.images, sizeof s->window.images));
    to[EVIDENCE_VALIDATION] = hash_fold(hash_data(scores, sizeof scores), hash_data(steps, sizeof steps));
    to[EVIDENCE_SKIPS] = hash_data(&s->skips, sizeof s->skips);
}

static void compose(struct recorder *r, const struct recorder_step *s, struct evidence_record *ret)
{
    struct evidence_detail *d = &r->detail;

    d->step = s->step;
    fill_shards(r, s);
    fill_tensors(r, s);
    fill_state(r, s->state);
    *ret = (struct evidence_record){ .step = s->step,
                                     .attempt = r->opt.attempt,
                                     .ranks = r->opt.nranks,
                                     .tier = s->tier,
                                     .skipped = s->skipped,
                                     .validated = s->state->val_step == s->step - 1,
                                     .lr = s->lr,
                                     .loss = (float)s->loss };
    ret->part[EVIDENCE_DATA] = fold_all(d->data, r->head.shards);
    ret->part[EVIDENCE_LOSS] = fold_all(d->loss, r->head.shards);
    ret->part[EVIDENCE_GRADIENT] = fold_all(d->gradient, r->head.ntensors);
    ret->part[EVIDENCE_WEIGHT] = fold_all(d->weight, r->head.ntensors);
    ret->part[EVIDENCE_STATE] = fold_all(d->state, EVIDENCE_STATES);
    ret->chain = evidence_chain(r->proof.chain, ret);
}

/* Compares a step with its record of an earlier attempt. Differences that are not an error are ignored: a user's
 * request for a validation is not repeated, and the chain then differs too. */
static int check_before(struct recorder *r, const struct replay_step *now, struct err *err)
{
    struct evidence_difference d;
    char text[TEXT_BYTES];

    if (!r->before || r->told || replay_compare(r->before, now, &d) != REPLAY_DIFFERS)
        return 0;
    if (d.part == EVIDENCE_STATE && (!d.located || d.state == EVIDENCE_VALIDATION))
        return 0;
    if (!replay_promised(r->before, now->record, r->opt.dev, text, sizeof text))
        return 0;
    r->told = true;
    return report_event(r->opt.report, err, "error", "determinism", "step %lld came out differently than in an earlier attempt: %s",
                        (long long)now->record->step, evidence_difference_text(&r->head, &d, text, sizeof text));
}

static int check_other(struct recorder *r, const struct replay_step *now, struct err *err)
{
    int64_t step = now->record->step;
    struct evidence_difference d;
    char how[TEXT_BYTES], why[TEXT_BYTES];

    if (!r->other)
        return 0;
    switch (replay_compare(r->other, now, &d)) {
    case REPLAY_NONE:
        return err_set(err, ERR_INPUT, "'%s' has no evidence of step %lld any more", r->opt.spec->verify_evidence, (long long)step);
    case REPLAY_DIFFERS:
        evidence_difference_text(&r->head, &d, how, sizeof how);
        if (replay_promised(r->other, now->record, r->opt.dev, why, sizeof why))
            return err_set(err, ERR_INPUT, "step %lld differs: %s", (long long)step, how);
        return err_set(err, ERR_INPUT, "step %lld differs: %s (%s)", (long long)step, how, why);
    case REPLAY_EQUAL:
        break;
    }
    r->first = r->first ? r->first : step;
    r->last = step;
    snprintf(r->verdict, sizeof r->verdict, "equal: steps %lld .. %lld%s", (long long)r->first, (long long)r->last,
             replay_tensors(r->other) ? "" : ", data and losses alone");
    return 0;
}

int recorder_step(struct recorder *r, const struct recorder_step *s, struct err *err)
{
    struct replay_step now = { &r->record, &r->detail };
    int rc = r->tensors ? compare_ranks(r, s, err) : 0;

    if (!r->on || rc < 0)
        return rc;
    if (r->tensors)
        memcpy(r->proof.weight, weights_in(r, s->heads[0]), (size_t)r->head.ntensors * sizeof(struct hash128));
    if (r->opt.rank != 0)
        return 0;
    compose(r, s, &r->record);
    r->proof.chain = r->record.chain;
    rc = check_before(r, &now, err);
    return rc < 0 ? rc : check_other(r, &now, err);
}

static int write_record(struct recorder *r, struct err *err)
{
    struct evidence_record was;
    int rc = evidence_log_write(r->log, &r->record, r->head.tensors ? &r->detail : NULL, &was, err);

    r->record.step = 0;
    return rc;
}

/* Evidence only proves: a failed write must not end the training. */
int recorder_write(struct recorder *r, struct err *err)
{
    int64_t step = r->record.step;
    struct err why;
    bool full = r->full;

    if (step == 0 || !r->log)
        return 0;
    r->full = write_record(r, &why) < 0;
    if (!r->full || full)
        return 0;
    return report_event(r->opt.report, err, "warning", "evidence", "step %lld is not recorded: %s", (long long)step, why.msg);
}

int recorder_sync(struct recorder *r, struct err *err)
{
    struct err why;

    if (!r->log || evidence_log_sync(r->log, &why) >= 0)
        return 0;
    return report_event(r->opt.report, err, "warning", "evidence", "not durable: %s", why.msg);
}

bool recorder_tier(const struct recorder *r, int64_t step, enum tier *ret)
{
    struct evidence_record was;

    if (!r->other || !replay_record(r->other, step, &was))
        return false;
    *ret = (enum tier)was.tier;
    return true;
}

bool recorder_validates(const struct recorder *r, int64_t step, bool *ret)
{
    struct evidence_record next;

    if (!r->other)
        return false;
    *ret = step < r->opt.spec->verify_to && replay_record(r->other, step + 1, &next) && next.validated;
    return true;
}

const char *recorder_verdict(const struct recorder *r)
{
    return r->verdict;
}

void recorder_close(struct recorder *r)
{
    struct err ignored;

    if (!r)
        return;
    if (r->record.step > 0 && r->log) /* writes the last record at the end of the run */
        write_record(r, &ignored);
    tensors_close(r->tensors);
    evidence_log_close(r->log);
    replay_close(r->before);
    replay_close(r->other);
    evidence_detail_free(&r->detail);
    for (int i = 0; i < 2; i++)
        free(r->sample[i]);
    free(r->proof.weight);
    free(r->head.tensor);
    free(r);
}
