/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_lt_plan.c - uses: plans proto worker/core
 * 1x1 convolutions as matrix products, and their plans if cuBLASLt has no algorithm. */
#include "tests/device/plans.h"
#include "worker/core/philox.h"

/* ---- 1x1 convolutions as matrix products: the definition of each direction, compared with lt_product(), in whole
 * numbers ---- */

enum { PIXELS = 6, IN = 3, OUT = 4, X_PITCH = 5, Y_PITCH = 7 };

struct arrays {
    float of[3][64]; /* by enum lt_operand */
};

static void fill(struct arrays *a, uint64_t seed)
{
    struct philox_key key = { .seed = seed };

    for (int o = 0; o < 3; o++)
        for (int i = 0; i < 64; i++)
            a->of[o][i] = (float)(int)(philox_uniform(&key, (uint64_t)(o * 64 + i)) * 17) - 8;
}

static void define(struct arrays *a, enum conv_dir dir, bool add)
{
    float *x = a->of[LT_X], *w = a->of[LT_W], *y = a->of[LT_Y];
    float *d = dir == CONV_FWD ? y : dir == CONV_BWD_DATA ? x : w;

    for (int i = 0; i < 64 && !add; i++) /* the gaps of a pitch keep their contents */
        if (dir == CONV_BWD_WEIGHTS ? i < IN * OUT
                                    : i < PIXELS * (dir == CONV_FWD ? Y_PITCH : X_PITCH) &&
                                          i % (dir == CONV_FWD ? Y_PITCH : X_PITCH) < (dir == CONV_FWD ? OUT : IN))
            d[i] = 0;
    for (int p = 0; p < PIXELS; p++)
        for (int c = 0; c < IN; c++)
            for (int k = 0; k < OUT; k++)
                if (dir == CONV_FWD)
                    y[p * Y_PITCH + k] += x[p * X_PITCH + c] * w[k * IN + c];
                else if (dir == CONV_BWD_DATA)
                    x[p * X_PITCH + c] += y[p * Y_PITCH + k] * w[k * IN + c];
                else
                    w[k * IN + c] += x[p * X_PITCH + c] * y[p * Y_PITCH + k];
}

static void multiply(struct arrays *a, const struct lt_product *g, bool add)
{
    for (int64_t j = 0; j < g->n; j++)
        for (int64_t i = 0; i < g->m; i++) {
            float *d = &a->of[g->d][j * g->ldd + i], sum = add ? *d : 0;

            for (int64_t l = 0; l < g->k; l++)
                sum += a->of[g->a][g->transpose_a ? i * g->lda + l : l * g->lda + i] *
                       a->of[g->b][g->transpose_b ? l * g->ldb + j : j * g->ldb + l];
            *d = sum;
        }
}

static void products_are_the_convolutions(void **state)
{
    (void)state;
    for (int dir = CONV_FWD; dir <= CONV_BWD_WEIGHTS; dir++)
        for (int add = 0; add < (dir == CONV_FWD ? 1 : 2); add++) {
            struct conv_key k = conv((enum conv_dir)dir, PRECISION_FP32, TIER_RERUN, 1, 1, IN, OUT, 1);
            struct arrays want, got;
            struct lt_product g;

            k.n = 2;
            k.w = 3;
            k.x_stride = X_PITCH;
            k.y_stride = Y_PITCH;
            g = lt_product(&k);
            fill(&want, 7);
            got = want;
            define(&want, k.dir, add);
            multiply(&got, &g, add);
            assert_true(lt_is_product(&k));
            assert_memory_equal(&want, &got, sizeof want);
        }
}

/* ---- made-up answers of cuBLASLt, which does not answer without a GPU ---- */

static const struct lt_answer {
    cublasStatus_t state, told;
    size_t workspace;
    uint32_t reduction;
    uint64_t flags;
} lt_answer[] = {
    { .told = CUBLAS_STATUS_INVALID_VALUE },
    { .reduction = CUBLASLT_REDUCTION_SCHEME_INPLACE, .flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F },
    { .flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F },
    { .flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F | CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA },
    { .workspace = LT_WORKSPACE + 1, .flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F },
    { .state = CUBLAS_STATUS_NOT_SUPPORTED },
    { .reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, .flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F },
};

static int lt_answers, lt_live; /* number of given answers; number of descriptors made and not yet destroyed */

static cublasStatus_t lt_create(void *ret)
{
    static int some;

    *(void **)ret = &some;
    lt_live++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_destroy(void *d)
{
    assert_non_null(d);
    lt_live--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_desc(cublasLtMatmulDesc_t *ret, cublasComputeType_t compute, cudaDataType_t scale)
{
    (void)compute;
    (void)scale;
    return lt_create(ret);
}

static cublasStatus_t lt_desc_free(cublasLtMatmulDesc_t d)
{
    return lt_destroy(d);
}

static cublasStatus_t lt_desc_set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr, const void *value, size_t size)
{
    (void)d;
    (void)attr;
    (void)value;
    (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_layout(cublasLtMatrixLayout_t *ret, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
    (void)type;
    (void)rows;
    (void)cols;
    (void)ld;
    return lt_create(ret);
}

static cublasStatus_t lt_layout_free(cublasLtMatrixLayout_t d)
{
    return lt_destroy(d);
}

static cublasStatus_t lt_preference(cublasLtMatmulPreference_t *ret)
{
    return lt_create(ret);
}

static cublasStatus_t lt_preference_free(cublasLtMatmulPreference_t d)
{
    return lt_destroy(d);
}

static cublasStatus_t lt_preference_set(cublasLtMatmulPreference_t d, cublasLtMatmulPreferenceAttributes_t attr, const void *value,
                                        size_t size)
{
    (void)d;
    (void)attr;
    (void)value;
    (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t pref, int most,
                                   cublasLtMatmulHeuristicResult_t ret[], int *ret_n)
{
    (void)handle;
    (void)pref;
    assert_true(op && a && b && c && d && most >= lt_answers);
    memset(ret, 0, (size_t)lt_answers * sizeof *ret);
    for (int i = 0; i < lt_answers; i++) {
        ret[i].algo.data[0] = (uint64_t)i;
        ret[i].state = lt_answer[i].state;
        ret[i].workspaceSize = lt_answer[i].workspace;
    }
    *ret_n = lt_answers;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_cap(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoCapAttributes_t attr, void *ret, size_t size, size_t *got)
{
    const struct lt_answer *a = &lt_answer[algo->data[0]];

    assert_int_equal(attr, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS);
    assert_int_equal(size, sizeof a->flags);
    memcpy(ret, &a->flags, size);
    *got = size;
    return a->told;
}

static cublasStatus_t lt_config(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attr, void *ret, size_t size,
                                size_t *got)
{
    uint32_t value = attr == CUBLASLT_ALGO_CONFIG_ID ? (uint32_t)algo->data[0] : lt_answer[algo->data[0]].reduction;

    if (attr != CUBLASLT_ALGO_CONFIG_ID && attr != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)
        return CUBLAS_STATUS_INVALID_VALUE;
    assert_int_equal(size, sizeof value);
    memcpy(ret, &value, size);
    *got = size;
    return CUBLAS_STATUS_SUCCESS;
}

static size_t lt_version(void)
{
    return 130100;
}

static const struct cublaslt_api made_up = { .cublasLtGetVersion = lt_version,
                                             .cublasLtMatmulDescCreate = lt_desc,
                                             .cublasLtMatmulDescDestroy = lt_desc_free,
                                             .cublasLtMatmulDescSetAttribute = lt_desc_set,
                                             .cublasLtMatrixLayoutCreate = lt_layout,
                                             .cublasLtMatrixLayoutDestroy = lt_layout_free,
                                             .cublasLtMatmulPreferenceCreate = lt_preference,
                                             .cublasLtMatmulPreferenceDestroy = lt_preference_free,
                                             .cublasLtMatmulPreferenceSetAttribute = lt_preference_set,
                                             .cublasLtMatmulAlgoGetHeuristic = lt_heuristic,
                                             .cublasLtMatmulAlgoCapGetAttribute = lt_cap,
                                             .cublasLtMatmulAlgoConfigGetAttribute = lt_config };

/* If the filter refuses all of its algorithms, each for another reason, cuDNN computes the product and the plan's line
 * says why. */
static void refused_products_say_why(void **state)
{
    static const char why[] =
        "; cublaslt has no usable algorithm (of 6: 1 do not tell how they sum, 1 sum in no order, 1 sum in low precision, "
        "1 on tensor cores, 1 too big, 1 cannot)";
    struct conv_key k = conv(CONV_FWD, PRECISION_FP32, TIER_RERUN, 8, 13, 64, 128, 1);
    struct plan_key key = plan_key_make(&k, NULL);
    static struct plan_name name[PLAN_NAMES];
    struct plan_target t;
    struct plan p;
    struct err err;

    (void)state;
    describe(&t, "sm_90");
    t.lt.api = &made_up;
    lt_answers = 6;
    made(&p, &t, &k);
    assert_int_equal(p.library, PLAN_CUDNN);
    assert_non_null(strstr(p.text, why));
    assert_string_equal(strstr(p.text, why), why);
    plan_free(&p);
    assert_true(plan_names(&t, &key, name) > 0);
    assert_int_equal(name[0].library, PLAN_CUDNN);
    lt_answers = 7;
    made(&p, &t, &k);
    assert_string_equal(p.name, "cublaslt algo 6 reduction 2");
    assert_null(strstr(p.text, "has none"));
    plan_free(&p);
    assert_true(plan_names(&t, &key, name) > 1);
    assert_string_equal(name[0].text, "cublaslt algo 6 reduction 2");
    assert_int_equal(plan_make_named(&p, &t, &key, name[0].text, &err), 0);
    plan_free(&p);
    assert_int_equal(plan_make_named(&p, &t, &key, "cublaslt algo 3 reduction 0", &err), ERR_UNSUPPORTED);
    k.precision = PRECISION_TF32; /* may use tensor cores */
    made(&p, &t, &k);
    assert_string_equal(p.name, "cublaslt algo 3 reduction 0");
    plan_free(&p);
    k.r = k.s = 3; /* not a product: cuBLASLt is not asked */
    k.pad = 1;
    made(&p, &t, &k);
    assert_int_equal(p.library, PLAN_CUDNN);
    assert_null(strstr(p.text, "cublaslt"));
    plan_free(&p);
    assert_int_equal(lt_live, 0);
    t.lt.api = NULL;
    plan_target_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_the_convolutions),
        cmocka_unit_test(refused_products_say_why),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
