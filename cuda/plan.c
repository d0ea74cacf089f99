#include "cuda/plan.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>

#include "cuda/plan_table.h"
#include "cuda/search.h"
#include "cuda/stem.h"
#include "proto/err.h"

int plan_target_open(struct plan_target *t, struct err *err)
{
    int rc;

    memset(t, 0, sizeof *t);
    rc = cudnn_target_open(&t->dnn, err);
    if (rc < 0)
        return rc;
    rc = lt_target_open(&t->lt, err);
    if (rc < 0)
        cudnn_target_close(&t->dnn);
    return rc;
}

void plan_target_table(struct plan_target *t, const char *table, const char *gpu)
{
    char dnn[24], lt[24] = "none";

    library_version_text((long)t->dnn.api->cudnnGetVersion(), dnn, sizeof dnn);
    if (t->lt.api)
        library_version_text((long)t->lt.api->cublasLtGetVersion(), lt, sizeof lt);
    snprintf(t->title, sizeof t->title, "GPU %s; cuDNN %s; cuBLASLt %s", gpu, dnn, lt);
    t->rows = plan_table_rows(table, t->title);
}

void plan_target_close(struct plan_target *t)
{
    lt_target_close(&t->lt);
    cudnn_target_close(&t->dnn);
}

/* cuDNN also has engines, which it compiles, for fp32 sums of bf16 tensors. They are not used: with slices of channels
 * their results were wrong (9.14 and 9.19 on H100), and they were never faster. */
static enum plan_finish finish_of(const struct conv_key *k)
{
    return cudnn_rounds_dw(k) ? PLAN_CAST : k->dir == CONV_BWD_WEIGHTS ? PLAN_ADD : PLAN_DONE;
}

static size_t scratch_bytes(const struct conv_key *k, enum plan_finish finish)
{
    size_t filter = (size_t)k->k * (size_t)k->r * (size_t)k->s * (size_t)k->c;

    if (finish == PLAN_DONE)
        return 0;
    return filter * (finish == PLAN_ADD ? sizeof(float) : plan_key_bytes(k));
}

static const char *finish_text(enum plan_finish finish)
{
    return finish == PLAN_CAST ? " then widen" : "";
}

static const char in_lt[] = "cublaslt ", in_cudnn[] = "cudnn ", own[] = "own stem";

static void with_own(struct plan *p)
{
    char key[PLAN_KEY_TEXT];

    p->library = PLAN_OWN;
    p->workspace = stem_workspace(&p->key.conv);
    snprintf(p->name, sizeof p->name, "%s", own);
    snprintf(p->text, sizeof p->text, "%s: %s workspace %zu", plan_key_text(&p->key, key), own, p->workspace);
}

/* only: a name without its library, or NULL. */
static int with_lt(struct plan *p, const struct plan_target *t, const char *only, struct err *err)
{
    char key[PLAN_KEY_TEXT];
    int rc = lt_plan_make(&p->lt, &t->lt, &p->key, only, &p->lt_tally, err);

    if (rc < 0)
        return rc;
    p->library = PLAN_CUBLASLT;
    p->workspace = p->lt.workspace;
    snprintf(p->name, sizeof p->name, "%s%s", in_lt, p->lt.name);
    snprintf(p->text, sizeof p->text, "%s: %s", plan_key_text(&p->key, key), p->lt.text);
    return 0;
}

/* Cuts the text of this finish off a name. Returns false if the name ends otherwise. */
static bool cut(const char *name, enum plan_finish finish, char ret[CUDNN_NAME_TEXT])
{
    const char *end = finish_text(finish);
    size_t all = strlen(name), tail = strlen(end);

    if (all < tail || strcmp(name + all - tail, end) != 0)
        return false;
    snprintf(ret, CUDNN_NAME_TEXT, "%.*s", (int)(all - tail), name);
    return true;
}

static int with_cudnn(struct plan *p, const struct plan_target *t, const char *only, struct err *err)
{
    enum plan_finish finish = finish_of(&p->key.conv);
    char key[PLAN_KEY_TEXT], engine[CUDNN_NAME_TEXT];
    int rc;

    if (only && !cut(only, finish, engine))
        return ERR_UNSUPPORTED;
    rc = cudnn_plan_make(&p->dnn, &t->dnn, &p->key, only ? engine : NULL, &p->tally, err);
    if (rc < 0)
        return rc;
    p->library = PLAN_CUDNN;
    p->finish = finish;
    p->workspace = p->dnn.workspace;
    p->scratch = scratch_bytes(&p->key.conv, finish);
    snprintf(p->name, sizeof p->name, "%s%s%s", in_cudnn, p->dnn.name, finish_text(finish));
    snprintf(p->text, sizeof p->text, "%s: %s%s", plan_key_text(&p->key, key), p->dnn.text, finish_text(finish));
    return 0;
}

static int refused(const struct plan *p, const char *why, struct err *err)
{
    const struct cudnn_tally *t = &p->tally;
    char key[PLAN_KEY_TEXT];

    return err_set(
        err, ERR_UNSUPPORTED,
        "no algorithm for convolution %s: %s (engines %d: %d not deterministic, %d sum in low precision, %d on tensor cores, %d round "
        "their inputs, %d need over %zu MiB, %d cannot). A smaller batch, more waves or another precision may have one",
        plan_key_text(&p->key, key), why, t->named, t->nondeterministic, t->reduced, t->tensor_core, t->down_convert, t->too_big,
        CUDNN_WORKSPACE_MAX >> 20, t->unmade);
}

int plan_make_named(struct plan *ret, const struct plan_target *t, const struct plan_key *key, const char *name, struct err *err)
{
    char text[PLAN_KEY_TEXT];
    struct err why = { .msg = "no such algorithm" };
    int rc = ERR_UNSUPPORTED;

    memset(ret, 0, sizeof *ret);
    memcpy(&ret->key, key, sizeof *key);
    if (strcmp(name, own) == 0 && stem_takes(key)) {
        with_own(ret);
        rc = 0;
    } else if (strncmp(name, in_lt, strlen(in_lt)) == 0 && t->lt.api && lt_is_product(&key->conv))
        rc = with_lt(ret, t, name + strlen(in_lt), &why);
    else if (strncmp(name, in_cudnn, strlen(in_cudnn)) == 0)
        rc = with_cudnn(ret, t, name + strlen(in_cudnn), &why);
    return rc < 0 ? err_set(err, rc, "plan of convolution %s by %s: %s", plan_key_text(key, text), name, why.msg) : 0;
}

static void remark(struct plan *p, const char *what)
{
    size_t len = strlen(p->text);

    snprintf(p->text + len, sizeof p->text - len, "; %s", what);
}

/* A product without cuBLASLt may be slow, so the reason is noted. */
static void remark_refusal(struct plan *p)
{
    const struct lt_tally *t = &p->lt_tally;
    char what[224];

    snprintf(
        what, sizeof what,
        "cublaslt has no usable algorithm (of %d: %d do not tell how they sum, %d sum in no order, %d sum in low precision, %d on tensor "
        "cores, %d too big, %d cannot)",
        t->named, t->untold, t->unordered, t->reduced, t->tensor_core, t->too_big, t->unmade);
    remark(p, what);
}

/* Takes the first choice of the heuristics that can be made. */
static int by_rule(struct plan *ret, const struct plan_target *t, const struct plan_key *key, struct err *err)
{
    char text[PLAN_KEY_TEXT];
    bool product = t->lt.api && lt_is_product(&key->conv);
    struct err why;
    int rc = ERR_UNSUPPORTED;

    memset(ret, 0, sizeof *ret);
    memcpy(&ret->key, key, sizeof *key);
    if (stem_takes(key)) {
        with_own(ret);
        return 0;
    }
    if (product)
        rc = with_lt(ret, t, NULL, &why);
    if (rc == ERR_UNSUPPORTED) {
        rc = with_cudnn(ret, t, NULL, &why);
        if (rc == 0 && product)
            remark_refusal(ret);
    }
    if (rc == 0)
        return 0;
    if (rc == ERR_UNSUPPORTED)
        return refused(ret, why.msg, err);
    return err_set(err, rc, "plan of convolution %s: %s", plan_key_text(key, text), why.msg);
}

/* Returns ERR_UNSUPPORTED if the table has no row for the key, or, with *ret_listed, only rows that the filter
 * refuses. */
static int by_table(struct plan *ret, const struct plan_target *t, const struct plan_key *key, bool *ret_listed, struct err *err)
{
    char text[PLAN_KEY_TEXT], name[PLAN_NAME_TEXT];
    const char *rows = t->rows;
    int rc = ERR_UNSUPPORTED;

    *ret_listed = false;
    plan_key_any_tier(key, text);
    while (rc == ERR_UNSUPPORTED && rows && plan_table_next(&rows, t->title, text, name, sizeof name)) {
        *ret_listed = true;
        rc = plan_make_named(ret, t, key, name, err);
    }
    if (rc == 0)
        remark(ret, "measured");
    return rc;
}

int plan_make(struct plan *ret, const struct plan_target *t, const struct plan_key *key, struct err *err)
{
    bool listed;
    int rc = by_table(ret, t, key, &listed, err);

    if (rc != ERR_UNSUPPORTED)
        return rc;
    rc = by_rule(ret, t, key, err);
    if (rc == 0 && listed)
        remark(ret, "not as measured");
    return rc;
}

static int name_products(const struct plan_target *t, const struct plan_key *key, struct plan_name *ret)
{
    char name[LT_CANDIDATES][LT_NAME_TEXT];
    int n = lt_plan_names(&t->lt, key, name);

    for (int i = 0; i < n; i++) {
        ret[i] = (struct plan_name){ .library = PLAN_CUBLASLT, .deterministic = true };
        snprintf(ret[i].text, sizeof ret[i].text, "%s%.*s", in_lt, LT_NAME_TEXT - 1, name[i]);
    }
    return n;
}

static int name_engines(const struct plan_target *t, const struct plan_key *key, struct plan_name *ret)
{
    struct cudnn_name name[CUDNN_NAMES];
    const char *end = finish_text(finish_of(&key->conv));
    int n = cudnn_plan_names(&t->dnn, key, name);

    for (int i = 0; i < n; i++) {
        ret[i] = (struct plan_name){ .library = PLAN_CUDNN, .deterministic = name[i].deterministic, .runtime = name[i].runtime };
        snprintf(ret[i].text, sizeof ret[i].text, "%s%.*s%s", in_cudnn, CUDNN_NAME_TEXT - 1, name[i].text, end);
    }
    return n;
}

int plan_names(const struct plan_target *t, const struct plan_key *key, struct plan_name ret[PLAN_NAMES])
{
    int n = 0;

    if (stem_takes(key)) {
        ret[n] = (struct plan_name){ .library = PLAN_OWN, .deterministic = true };
        snprintf(ret[n].text, sizeof ret[n].text, "%s", own);
        n++;
    }
    if (t->lt.api && lt_is_product(&key->conv))
        n += name_products(t, key, ret + n);
    return n + name_engines(t, key, ret + n);
}

void plan_free(struct plan *p)
{
    switch (p->library) {
    case PLAN_CUDNN:
        cudnn_plan_free(&p->dnn);
        break;
    case PLAN_CUBLASLT:
        lt_plan_free(&p->lt);
        break;
    case PLAN_OWN:
        break;
    }
}
