#include "cuda/cudnn_plan.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/search.h"
#include "proto/err.h"

enum { KNOBS = 48 };

/* Reports the library's own text for the last failure, cut to one line. */
static int failed(const struct cudnn_api *api, cudnnStatus_t status, const char *what, struct err *err)
{
    char why[256] = "";

    api->cudnnGetLastErrorString(why, sizeof why);
    why[sizeof why - 1] = '\0';
    why[strcspn(why, "\n")] = '\0';
    return err_set(err, ERR_DEVICE, "%s: %s%s%s", what, api->cudnnGetErrorString(status), why[0] ? ": " : "", why);
}

int cudnn_target_open(struct cudnn_target *t, struct err *err)
{
    cudnnStatus_t status;
    int rc;

    memset(t, 0, sizeof *t);
    rc = libs_cudnn(&t->api, err);
    if (rc < 0)
        return rc;
    status = t->api->cudnnCreate(&t->handle);
    return status == CUDNN_STATUS_SUCCESS ? 0 : failed(t->api, status, "cudnnCreate", err);
}

int cudnn_target_describe(struct cudnn_target *t, const char *json, struct err *err)
{
    cudnnStatus_t status;
    int rc;

    memset(t, 0, sizeof *t);
    rc = libs_cudnn(&t->api, err);
    if (rc < 0)
        return rc;
    status = t->api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &t->device);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->api->cudnnBackendSetAttribute(t->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                                  (int64_t)strlen(json) + 1, json);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->api->cudnnBackendFinalize(t->device);
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    rc = failed(t->api, status, "cuDNN does not read the device's description", err);
    cudnn_target_close(t);
    return rc;
}

void cudnn_target_close(struct cudnn_target *t)
{
    if (t->handle)
        t->api->cudnnDestroy(t->handle);
    if (t->device)
        t->api->cudnnBackendDestroyDescriptor(t->device);
    t->handle = NULL;
    t->device = NULL;
}

/* Puts up to CUDNN_CANDIDATES engine configurations, best first, into list->d[1] and the following. Returns their
 * number; 0: the mode knows no engine. */
static int candidates(struct cudnn_descs *list, const struct cudnn_target *t, cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t heur = cudnn_desc_new(list, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t count = 0;

    cudnn_desc_set_desc(list, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    cudnn_desc_set(list, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (t->device)
        cudnn_desc_set_desc(list, heur, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, t->device);
    cudnn_desc_finalize(list, heur);
    for (int i = 0; i < CUDNN_CANDIDATES; i++) /* the library copies results into descriptors of the caller */
        cudnn_desc_new(list, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (list->status == CUDNN_STATUS_SUCCESS)
        list->status = t->api->cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                        CUDNN_CANDIDATES, &count, &list->d[1]);
    if (list->status != CUDNN_STATUS_SUCCESS)
        return 0;
    return count < CUDNN_CANDIDATES ? (int)count : CUDNN_CANDIDATES;
}

struct engine_facts {
    int64_t index;
    uint32_t notes;
    bool runtime; /* compiled when the plan is made */
};

/* Returns false if the engine does not describe itself and cannot be judged. */
static bool read_engine(const struct cudnn_api *api, cudnnBackendDescriptor_t config, struct engine_facts *ret)
{
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine;
    int64_t n = 0, nnotes = 0, nbehaviours = 0;
    bool ok = false;

    *ret = (struct engine_facts){ 0 };
    if (api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS)
        return false;
    if (api->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine) ||
        api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &ret->index) ||
        api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                      &nnotes, note) ||
        api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT,
                                      &nbehaviours, behaviour))
        goto out;
    /* a newer library may count more notes than these headers know; such an engine is not trusted */
    if (nnotes > CUDNN_NUMERICAL_NOTE_TYPE_COUNT || nbehaviours > CUDNN_BEHAVIOR_NOTE_TYPE_COUNT)
        goto out;
    for (int64_t i = 0; i < nnotes; i++)
        ret->notes |= 1u << note[i];
    for (int64_t i = 0; i < nbehaviours; i++)
        ret->runtime |= behaviour[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    ok = true;
out:
    api->cudnnBackendDestroyDescriptor(engine);
    return ok;
}

/* A list of the heuristics and the kinds of engines to try from it. */
struct pass {
    cudnnBackendHeurMode_t mode;
    unsigned kinds;
};

enum { COME_COMPILED = 1 << false, BY_COMPILER = 1 << true, OF_BOTH_KINDS = COME_COMPILED | BY_COMPILER };

/* The passes; the last one has no kinds. For a bf16 weight gradient dozens of engines are ready compiled, while each
 * other engine takes a compiler seconds. The fallbacks are ready compiled, too, but many times slower. */
static const struct pass *passes_of(const struct conv_key *k)
{
    static const struct pass any[] = { { CUDNN_HEUR_MODE_A, OF_BOTH_KINDS }, { CUDNN_HEUR_MODE_FALLBACK, OF_BOTH_KINDS }, { 0 } };
    static const struct pass compiled_first[] = {
        { CUDNN_HEUR_MODE_A, COME_COMPILED }, { CUDNN_HEUR_MODE_A, BY_COMPILER }, { CUDNN_HEUR_MODE_FALLBACK, OF_BOTH_KINDS }, { 0 }
    };

    return cudnn_rounds_dw(k) ? compiled_first : any;
}

/* An engine that does not describe itself counts as ready compiled. */
static bool takes(const struct pass *pass, const struct engine_facts *e)
{
    return pass->kinds >> e->runtime & 1;
}

/* The filter. Counts a refused engine once, under its gravest note. */
static bool allowed(const struct conv_key *k, const struct engine_facts *e, struct cudnn_tally *tally)
{
    bool strict = k->dtype == DTYPE_F32 && k->precision != PRECISION_TF32;
    const struct {
        cudnnBackendNumericalNote_t note;
        bool refused;
        int *count;
    } rule[] = {
        { CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, k->tier != TIER_OFF, &tally->nondeterministic },
        { CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, true, &tally->reduced },
        { CUDNN_NUMERICAL_NOTE_TENSOR_CORE, strict, &tally->tensor_core },
        { CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, strict, &tally->down_convert },
    };

    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++)
        if (rule[i].refused && (e->notes >> rule[i].note & 1)) {
            ++*rule[i].count;
            return false;
        }
    return true;
}

static cudnnStatus_t finalize_plan(const struct cudnn_target *t, cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t *ret_plan,
                                   int64_t *ret_workspace)
{
    cudnnBackendDescriptor_t plan = NULL;
    cudnnStatus_t status = t->api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    int64_t n;

    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (t->handle)
        status = t->api->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &t->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->api->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (status == CUDNN_STATUS_SUCCESS && t->device)
        status = t->api->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t->device);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->api->cudnnBackendFinalize(plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = t->api->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, ret_workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        *ret_plan = plan;
    else
        t->api->cudnnBackendDestroyDescriptor(plan);
    return status;
}

static bool out_of_memory(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED || status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

/* True for errors that depend only on the request. */
static bool refuses(cudnnStatus_t status)
{
    return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED || CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM;
}

static int by_type(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* "2=5,12=0,...": the knobs of a configuration in the order of their types. */
static void knob_text(const struct cudnn_api *api, cudnnBackendDescriptor_t config, char *ret, size_t size)
{
    struct cudnn_descs knobs;
    int64_t count = 0, value[KNOBS][2] = { 0 }, got;
    size_t len = 0;
    int n = 0;

    cudnn_descs_init(&knobs, api);
    for (int i = 0; i < KNOBS; i++)
        cudnn_desc_new(&knobs, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (knobs.status == CUDNN_STATUS_SUCCESS &&
        api->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS, &count, knobs.d))
        count = 0;
    for (int64_t i = 0; i < count && i < KNOBS; i++) {
        cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;

        if (api->cudnnBackendGetAttribute(knobs.d[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &got, &type) == 0 &&
            api->cudnnBackendGetAttribute(knobs.d[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got, &value[n][1]) == 0)
            value[n++][0] = type;
    }
    cudnn_descs_free(&knobs);
    qsort(value, (size_t)n, sizeof *value, by_type);
    ret[0] = '\0';
    for (int i = 0; i < n && len < size; i++)
        len += (size_t)snprintf(ret + len, size - len, "%s%d=%lld", i ? "," : "", (int)value[i][0], (long long)value[i][1]);
}

static void name_engine(const struct cudnn_api *api, cudnnBackendDescriptor_t config, const struct engine_facts *e,
                        char ret[CUDNN_NAME_TEXT])
{
    char knobs[CUDNN_NAME_TEXT - 32];

    knob_text(api, config, knobs, sizeof knobs);
    snprintf(ret, CUDNN_NAME_TEXT, "engine %lld knobs %s", (long long)e->index, knobs[0] ? knobs : "-");
}

static void describe(struct cudnn_plan *p, const struct engine_facts *e, cudnnBackendHeurMode_t mode)
{
    snprintf(p->text, sizeof p->text, "cudnn %s %s notes 0x%x%s workspace %zu", mode == CUDNN_HEUR_MODE_A ? "a" : "fallback", p->name,
             e->notes, e->runtime ? " runtime" : "", p->workspace);
}

/* Moves the configuration from the list to the plan, so that both live equally long. */
static void keep(struct cudnn_plan *p, struct cudnn_descs *list, int config)
{
    p->descs.d[p->descs.n++] = list->d[config];
    list->d[config] = list->d[--list->n];
}

/* The engine to look for. */
struct wish {
    const struct cudnn_target *t;
    const struct conv_key *k;
    const struct pass *pass;
    const char *only; /* NULL: any */
};

/* Tries one engine. Sets p->plan if it fits. A lack of memory must not change the choice, so it ends the search
 * (p->descs.status). */
static void try_engine(struct cudnn_plan *p, const struct wish *q, struct cudnn_descs *list, int config, struct cudnn_tally *tally)
{
    const struct cudnn_target *t = q->t;
    cudnnBackendDescriptor_t plan;
    char name[CUDNN_NAME_TEXT];
    struct engine_facts e;
    cudnnStatus_t status;
    int64_t workspace = 0;
    bool told = read_engine(t->api, list->d[config], &e);

    if (!takes(q->pass, &e))
        return;
    tally->named++;
    if (!told) {
        tally->unmade++;
        return;
    }
    if (!allowed(q->k, &e, tally))
        return;
    name_engine(t->api, list->d[config], &e, name);
    if (q->only && strcmp(q->only, name) != 0)
        return;
    status = finalize_plan(t, list->d[config], &plan, &workspace);
    if (status != CUDNN_STATUS_SUCCESS) {
        tally->unmade++;
        tally->unmade_runtime += e.runtime;
        if (out_of_memory(status))
            p->descs.status = status;
        return;
    }
    if (workspace < 0 || (size_t)workspace > CUDNN_WORKSPACE_MAX) {
        tally->too_big++;
        t->api->cudnnBackendDestroyDescriptor(plan);
        return;
    }
    p->plan = plan;
    p->workspace = (size_t)workspace;
    p->notes = e.notes;
    p->runtime = e.runtime;
    memcpy(p->name, name, sizeof name);
    describe(p, &e, q->pass->mode);
    keep(p, list, config);
}

static void choose(struct cudnn_plan *p, const struct wish *q, cudnnBackendDescriptor_t graph, struct cudnn_tally *tally)
{
    struct cudnn_descs list;
    int n;

    cudnn_descs_init(&list, q->t->api);
    n = candidates(&list, q->t, graph, q->pass->mode);
    if (out_of_memory(list.status)) /* a list lost for lack of memory must not change the choice, either */
        p->descs.status = list.status;
    for (int i = 1; i <= n && !p->plan && p->descs.status == CUDNN_STATUS_SUCCESS; i++)
        try_engine(p, q, &list, i, tally);
    cudnn_descs_free(&list);
}

int cudnn_plan_make(struct cudnn_plan *ret, const struct cudnn_target *t, const struct plan_key *key, const char *only,
                    struct cudnn_tally *tally, struct err *err)
{
    cudnnBackendDescriptor_t graph;
    char version[24];
    int rc;

    memset(ret, 0, sizeof *ret);
    cudnn_descs_init(&ret->descs, t->api);
    graph = cudnn_graph(&ret->descs, t->handle, key);
    for (const struct pass *p = passes_of(&key->conv); p->kinds && !ret->plan && ret->descs.status == CUDNN_STATUS_SUCCESS; p++)
        choose(ret, &(struct wish){ t, &key->conv, p, only }, graph, tally);
    if (ret->plan)
        return 0;
    library_version_text((long)t->api->cudnnGetVersion(), version, sizeof version);
    if (out_of_memory(ret->descs.status))
        rc = err_set(err, -ENOMEM, "cuDNN has no memory for the plan of a convolution: a smaller batch or more waves leave some");
    else if (ret->descs.status != CUDNN_STATUS_SUCCESS && !refuses(ret->descs.status))
        rc = failed(t->api, ret->descs.status, "cuDNN refuses the operation", err);
    else
        rc = err_set(err, ERR_UNSUPPORTED, "cuDNN %s has no engine for it", version);
    cudnn_plan_free(ret);
    return rc;
}

static bool is_named(const struct cudnn_name *list, int n, const char *text)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].text, text) == 0)
            return true;
    return false;
}

/* Appends names to the n names of *ret. Returns their new number. */
static int name_all(const struct wish *q, cudnnBackendDescriptor_t graph, struct cudnn_name ret[CUDNN_NAMES], int n)
{
    struct cudnn_tally ignored = { 0 };
    struct cudnn_descs list;
    int count;

    cudnn_descs_init(&list, q->t->api);
    count = candidates(&list, q->t, graph, q->pass->mode);
    for (int i = 1; i <= count; i++) {
        struct engine_facts e;

        if (!read_engine(q->t->api, list.d[i], &e) || !takes(q->pass, &e) || !allowed(q->k, &e, &ignored))
            continue;
        name_engine(q->t->api, list.d[i], &e, ret[n].text);
        ret[n].deterministic = !(e.notes >> CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC & 1);
        ret[n].runtime = e.runtime;
        n += !is_named(ret, n, ret[n].text);
    }
    cudnn_descs_free(&list);
    return n;
}

int cudnn_plan_names(const struct cudnn_target *t, const struct plan_key *key, struct cudnn_name ret[CUDNN_NAMES])
{
    struct cudnn_descs descs;
    cudnnBackendDescriptor_t graph;
    int n = 0;

    cudnn_descs_init(&descs, t->api);
    graph = cudnn_graph(&descs, t->handle, key);
    for (const struct pass *p = passes_of(&key->conv); p->kinds && descs.status == CUDNN_STATUS_SUCCESS; p++)
        n = name_all(&(struct wish){ t, &key->conv, p, NULL }, graph, ret, n);
    cudnn_descs_free(&descs);
    return n;
}

void cudnn_plan_free(struct cudnn_plan *p)
{
    if (p->plan)
        p->descs.api->cudnnBackendDestroyDescriptor(p->plan);
    p->plan = NULL;
    cudnn_descs_free(&p->descs);
}

int cudnn_plan_run(const struct cudnn_plan *p, cudnnHandle_t handle, void *x, const void *w, void *y, const void *bias, void *workspace,
                   struct err *err)
{
    int64_t name[] = { CUDNN_X, CUDNN_W, CUDNN_Y, CUDNN_BIAS };
    void *address[] = { x, (void *)w, y, (void *)bias };
    cudnnBackendDescriptor_t pack;
    struct cudnn_descs b;
    int rc = 0;

    cudnn_descs_init(&b, p->descs.api);
    pack = cudnn_desc_new(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    cudnn_desc_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, bias ? 4 : 3, name);
    cudnn_desc_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, bias ? 4 : 3, address);
    cudnn_desc_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    cudnn_desc_finalize(&b, pack);
    if (b.status == CUDNN_STATUS_SUCCESS)
        b.status = b.api->cudnnBackendExecute(handle, p->plan, pack);
    if (b.status != CUDNN_STATUS_SUCCESS)
        rc = failed(b.api, b.status, "cuDNN", err);
    cudnn_descs_free(&b);
    return rc;
}
