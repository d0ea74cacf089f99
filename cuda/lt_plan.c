#include "cuda/lt_plan.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>

#include "cuda/search.h"
#include "proto/err.h"

static int failed(const struct cublaslt_api *api, cublasStatus_t status, const char *what, struct err *err)
{
    return err_set(err, ERR_DEVICE, "%s: %s", what, api->cublasLtGetStatusString(status));
}

int lt_target_open(struct lt_target *t, struct err *err)
{
    cublasStatus_t status;
    int rc;

    memset(t, 0, sizeof *t);
    rc = libs_cublaslt(&t->api, err);
    if (rc < 0)
        return rc;
    status = t->api->cublasLtCreate(&t->handle);
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    rc = failed(t->api, status, "cublasLtCreate", err);
    t->api = NULL;
    return rc;
}

void lt_target_close(struct lt_target *t)
{
    if (t->api)
        t->api->cublasLtDestroy(t->handle);
    t->api = NULL;
}

bool lt_is_product(const struct conv_key *k)
{
    return k->r == 1 && k->s == 1 && k->stride == 1 && k->pad == 0;
}

struct lt_product lt_product(const struct conv_key *k)
{
    int64_t pixels = (int64_t)k->n * k->h * k->w;

    switch (k->dir) {
    case CONV_FWD:
        return (struct lt_product){ k->k, pixels, k->c, LT_W, LT_X, LT_Y, true, false, k->c, k->x_stride, k->y_stride };
    case CONV_BWD_DATA:
        return (struct lt_product){ k->c, pixels, k->k, LT_W, LT_Y, LT_X, false, false, k->c, k->y_stride, k->x_stride };
    case CONV_BWD_WEIGHTS:
        break;
    }
    return (struct lt_product){ k->c, k->k, pixels, LT_X, LT_Y, LT_W, false, true, k->x_stride, k->y_stride, k->c };
}

/* The bias has no address yet, but the heuristic derives its alignment from the address. So it gets an address with
 * exactly the promised alignment. */
static cublasStatus_t describe_bias(struct lt_plan *p, const struct plan_key *key, cudaDataType_t type)
{
    const void *some = (const void *)(uintptr_t)key->align_w;
    cublasStatus_t s = p->api->cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = p->api->cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &some, sizeof some);
    return s;
}

static cublasStatus_t describe_op(struct lt_plan *p, const struct plan_key *key, cudaDataType_t type)
{
    const struct conv_key *k = &key->conv;
    cublasComputeType_t sum = k->dtype == DTYPE_F32 && k->precision == PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t ta = p->product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, tb = p->product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = k->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    cublasStatus_t s = p->api->cublasLtMatmulDescCreate(&p->op, sum, CUDA_R_32F);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = p->api->cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = p->api->cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = p->api->cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    return s == CUBLAS_STATUS_SUCCESS && k->bias ? describe_bias(p, key, type) : s;
}

static cublasStatus_t describe_matrices(struct lt_plan *p, cudaDataType_t type, cudaDataType_t result)
{
    const struct lt_product *g = &p->product;
    uint64_t m = (uint64_t)g->m, n = (uint64_t)g->n, k = (uint64_t)g->k;
    cublasStatus_t s = p->api->cublasLtMatrixLayoutCreate(&p->a, type, g->transpose_a ? k : m, g->transpose_a ? m : k, g->lda);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = p->api->cublasLtMatrixLayoutCreate(&p->b, type, g->transpose_b ? n : k, g->transpose_b ? k : n, g->ldb);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = p->api->cublasLtMatrixLayoutCreate(&p->d, result, m, n, g->ldd);
    return s;
}

static uint32_t align_of(const struct plan_key *key, enum lt_operand o)
{
    return (uint32_t)(o == LT_X ? key->align_x : o == LT_Y ? key->align_y : key->align_w);
}

/* Partial sums of split products must be added in fp32 and outside of the product: in place, their order depends on the
 * blocks that finish first. */
static cublasStatus_t describe_wishes(const struct lt_plan *p, const struct plan_key *key, cublasLtMatmulPreference_t pref)
{
    const struct cublaslt_api *api = p->api;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint64_t workspace = LT_WORKSPACE;
    uint32_t a = align_of(key, p->product.a), b = align_of(key, p->product.b), d = align_of(key, p->product.d);
    cublasStatus_t s =
        api->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = api->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = api->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = api->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = api->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &d, sizeof d);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = api->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d, sizeof d);
    return s;
}

/* The filter: sums must be in fp32, and strict fp32 forbids tensor cores, which round their inputs. Counts refused
 * algorithms. */
static bool allowed(const struct cublaslt_api *api, const struct conv_key *k, const cublasLtMatmulHeuristicResult_t *r,
                    struct lt_tally *tally)
{
    bool strict = k->dtype == DTYPE_F32 && k->precision != PRECISION_TF32;
    uint32_t reduction = 0;
    uint64_t flags = 0;
    size_t got;

    tally->named++;
    if (r->state != CUBLAS_STATUS_SUCCESS)
        tally->unmade++;
    else if (r->workspaceSize > LT_WORKSPACE)
        tally->too_big++;
    else if (api->cublasLtMatmulAlgoConfigGetAttribute(&r->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction, sizeof reduction,
                                                       &got) ||
             api->cublasLtMatmulAlgoCapGetAttribute(&r->algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof flags, &got))
        tally->untold++;
    else if (reduction != CUBLASLT_REDUCTION_SCHEME_NONE && reduction != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        tally->unordered++;
    else if ((flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_TYPE_MASK) != CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F)
        tally->reduced++;
    else if (strict && (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK))
        tally->tensor_core++;
    else
        return true;
    return false;
}

/* The contents of the opaque 64 bytes: "algo 66 tile 20 split 1 ...". */
static void name_algo(const struct cublaslt_api *api, const cublasLtMatmulAlgo_t *algo, char ret[LT_NAME_TEXT])
{
    static const struct {
        const char *name;
        cublasLtMatmulAlgoConfigAttributes_t attr;
        size_t size;
    } part[] = {
        { "algo", CUBLASLT_ALGO_CONFIG_ID, 4 },
        { "tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4 },
        { "stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4 },
        { "split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4 },
        { "reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4 },
        { "swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4 },
        { "custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4 },
        { "inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2 },
        { "cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2 },
    };
    size_t len = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < sizeof part / sizeof *part && len < LT_NAME_TEXT; i++) {
        uint32_t value = 0; /* little-endian: two bytes fill the low half */
        size_t got;

        if (api->cublasLtMatmulAlgoConfigGetAttribute(algo, part[i].attr, &value, part[i].size, &got) == CUBLAS_STATUS_SUCCESS)
            len += (size_t)snprintf(ret + len, LT_NAME_TEXT - len, "%s%s %u", len ? " " : "", part[i].name, value);
    }
}

/* The allowed answers of the heuristic, best first. */
static cublasStatus_t ask(const struct lt_plan *p, const struct lt_target *t, const struct plan_key *key,
                          cublasLtMatmulHeuristicResult_t ret[LT_CANDIDATES], int *ret_n, struct lt_tally *tally)
{
    cublasLtMatmulPreference_t pref;
    int n = 0;
    cublasStatus_t s = t->api->cublasLtMatmulPreferenceCreate(&pref);

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    s = describe_wishes(p, key, pref);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = t->api->cublasLtMatmulAlgoGetHeuristic(t->handle, p->op, p->a, p->b, p->d, p->d, pref, LT_CANDIDATES, ret, &n);
    t->api->cublasLtMatmulPreferenceDestroy(pref);
    *ret_n = 0;
    for (int i = 0; i < n && s == CUBLAS_STATUS_SUCCESS; i++)
        if (allowed(t->api, &key->conv, &ret[i], tally))
            ret[(*ret_n)++] = ret[i];
    return s;
}

static cublasStatus_t choose(struct lt_plan *p, const struct lt_target *t, const struct plan_key *key, const char *only,
                             struct lt_tally *tally)
{
    cublasLtMatmulHeuristicResult_t result[LT_CANDIDATES];
    int n;
    cublasStatus_t s = ask(p, t, key, result, &n, tally);

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    for (int i = 0; i < n; i++) {
        name_algo(t->api, &result[i].algo, p->name);
        if (only && strcmp(only, p->name) != 0)
            continue;
        p->algo = result[i].algo;
        p->workspace = result[i].workspaceSize;
        snprintf(p->text, sizeof p->text, "cublaslt %s workspace %zu", p->name, p->workspace);
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Makes all descriptors, but not the algorithm. The caller must call lt_plan_free(), also after a failure. */
static cublasStatus_t describe(struct lt_plan *p, const struct lt_target *t, const struct plan_key *key)
{
    const struct conv_key *k = &key->conv;
    cudaDataType_t type = k->dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    cublasStatus_t s;

    memset(p, 0, sizeof *p);
    p->api = t->api;
    p->product = lt_product(k);
    p->bias = k->bias;
    s = describe_op(p, key, type);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = describe_matrices(p, type, k->dir == CONV_BWD_WEIGHTS ? CUDA_R_32F : type);
    return s;
}

int lt_plan_names(const struct lt_target *t, const struct plan_key *key, char ret[LT_CANDIDATES][LT_NAME_TEXT])
{
    cublasLtMatmulHeuristicResult_t result[LT_CANDIDATES];
    struct lt_tally ignored = { 0 };
    struct lt_plan p;
    int n = 0;

    if (describe(&p, t, key) != CUBLAS_STATUS_SUCCESS || ask(&p, t, key, result, &n, &ignored) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    for (int i = 0; i < n; i++)
        name_algo(t->api, &result[i].algo, ret[i]);
    lt_plan_free(&p);
    return n;
}

int lt_plan_make(struct lt_plan *ret, const struct lt_target *t, const struct plan_key *key, const char *only, struct lt_tally *tally,
                 struct err *err)
{
    char version[24];
    cublasStatus_t s = describe(ret, t, key);
    int rc;

    if (s == CUBLAS_STATUS_SUCCESS)
        s = choose(ret, t, key, only, tally);
    if (s == CUBLAS_STATUS_SUCCESS)
        return 0;
    library_version_text((long)t->api->cublasLtGetVersion(), version, sizeof version);
    if (s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE || s == CUBLAS_STATUS_ARCH_MISMATCH)
        rc = err_set(err, ERR_UNSUPPORTED, "cuBLASLt %s has no algorithm for it", version);
    else
        rc = failed(t->api, s, "cuBLASLt", err);
    lt_plan_free(ret);
    return rc;
}

void lt_plan_free(struct lt_plan *p)
{
    if (p->d)
        p->api->cublasLtMatrixLayoutDestroy(p->d);
    if (p->b)
        p->api->cublasLtMatrixLayoutDestroy(p->b);
    if (p->a)
        p->api->cublasLtMatrixLayoutDestroy(p->a);
    if (p->op)
        p->api->cublasLtMatmulDescDestroy(p->op);
    memset(p, 0, sizeof *p);
}

static void *address(const struct lt_plan *p, const struct conv_args *args, enum lt_operand o)
{
    if (o == LT_X)
        return args->x;
    if (o == LT_Y)
        return args->y;
    return p->product.d == LT_W ? args->dw : (void *)args->w;
}

int lt_plan_run(struct lt_plan *p, const struct lt_target *t, const struct conv_args *args, bool add, void *workspace, cudaStream_t stream,
                struct err *err)
{
    static const float zero = 0.0f, one = 1.0f;
    void *d = address(p, args, p->product.d);
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;

    if (p->bias)
        s = p->api->cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &args->bias, sizeof args->bias);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = p->api->cublasLtMatmul(t->handle, p->op, &one, address(p, args, p->product.a), p->a, address(p, args, p->product.b), p->b,
                                   add ? &one : &zero, d, p->d, d, p->d, &p->algo, workspace, p->workspace, stream);
    return s == CUBLAS_STATUS_SUCCESS ? 0 : failed(p->api, s, "cuBLASLt", err);
}
