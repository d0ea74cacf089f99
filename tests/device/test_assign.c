/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_assign.c - uses: proto worker/core worker/layers cpu cuda
 * One-to-one assignment: the vectors of specs sparse_rcnn section 15, the least cost among all assignments, and costs
 * full of ties on every device. */
#include "tests/device/golden_json.h"
#include "tests/device/set_cases.h"

#include "worker/kernels/assign.h"

enum { MOST = 10 }; /* of the larger side, where all assignments are tried */

/* Solves costs [proposals][truths]; writes each proposal's truth or -1. */
static void solve(const int64_t *cost, int proposals, int truths, int32_t *ret)
{
    int64_t *room = malloc(assign_room(1, (size_t)proposals, (size_t)truths) * sizeof *room);
    struct assign a = assign_in(room, proposals, truths);

    assert_non_null(room);
    for (int p = 0; p < proposals; p++)
        for (int t = 0; t < truths; t++)
            a.cost[truths <= proposals ? t * proposals + p : p * truths + t] = cost[p * truths + t];
    assign_solve(&a, 0, 1);
    for (int p = 0; p < proposals; p++)
        ret[p] = -1;
    for (int i = 0; i < a.rows; i++)
        ret[truths <= proposals ? a.col_of[i] : i] = (int32_t)(truths <= proposals ? i : a.col_of[i]);
    free(room);
}

static void vectors(void **state)
{
    json_t *root = golden_file("tests/golden/sparse_rcnn.json"), *all = member(root, "assign");

    (void)state;
    assert_int_equal(json_array_size(all), 14);
    for (size_t i = 0; i < 14; i++) {
        json_t *one = json_array_get(all, i), *rows = member(one, "cost");
        int proposals = (int)json_array_size(rows), truths = (int)json_array_size(json_array_get(rows, 0));
        float cost[400], want[400];
        int64_t whole[400];
        int32_t got[400];

        assert_int_equal(nested_in_json(rows, cost), proposals * truths);
        nested_in_json(member(one, "truth_of_proposal"), want);
        for (int k = 0; k < proposals * truths; k++)
            whole[k] = (int64_t)cost[k];
        solve(whole, proposals, truths, got);
        for (int p = 0; p < proposals; p++)
            assert_int_equal(got[p], (int)want[p]);
    }
    json_decref(root);
}

/* The least total cost, by trying every set of truths for the first proposals, one more at a time. Proposals may stay
 * without truth if truths are fewer. */
static int64_t least_cost(const int64_t *cost, int proposals, int truths)
{
    static int64_t best[2][1 << MOST];
    int want = proposals < truths ? proposals : truths;
    int64_t least = INT64_MAX;

    for (int set = 0; set < 1 << truths; set++)
        best[0][set] = set ? INT64_MAX : 0;
    for (int p = 0; p < proposals; p++) {
        int64_t *from = best[p % 2], *to = best[1 - p % 2];

        for (int set = 0; set < 1 << truths; set++)
            to[set] = from[set];
        for (int set = 0; set < 1 << truths; set++)
            for (int t = 0; t < truths && from[set] < INT64_MAX; t++)
                if (!(set >> t & 1) && from[set] + cost[p * truths + t] < to[set | 1 << t])
                    to[set | 1 << t] = from[set] + cost[p * truths + t];
    }
    for (int set = 0; set < 1 << truths; set++)
        if (__builtin_popcount((unsigned)set) == want && best[proposals % 2][set] < least)
            least = best[proposals % 2][set];
    return least;
}

static void least_of_all(void **state)
{
    struct philox_key key = { .seed = 7 };
    uint64_t draw = 0;

    (void)state;
    for (int i = 0; i < 3000; i++) {
        int proposals = 1 + (int)(philox_uniform(&key, draw++) * MOST), truths = 1 + (int)(philox_uniform(&key, draw++) * MOST);
        int kinds = 1 + i % 6, pairs = 0, taken = 0;
        int64_t cost[MOST * MOST], sum = 0;
        int32_t got[MOST];

        for (int k = 0; k < proposals * truths; k++)
            cost[k] = (int64_t)(philox_uniform(&key, draw++) * (float)kinds) * (i % 2 ? 1 : (int64_t)1 << 46) - (i % 3 ? 0 : kinds);
        solve(cost, proposals, truths, got);
        for (int p = 0; p < proposals; p++)
            if (got[p] >= 0) {
                assert_true(got[p] < truths && !(taken >> got[p] & 1)); /* each truth once */
                taken |= 1 << got[p];
                sum += cost[p * truths + got[p]];
                pairs++;
            }
        assert_int_equal(pairs, proposals < truths ? proposals : truths);
        assert_true(sum == least_cost(cost, proposals, truths));
    }
}

/* The lower of equal proposals is matched, and all equal truths are. */
static void equal_proposals(void **state)
{
    const int64_t cost[5 * 2] = { 9, 9, 3, 3, 3, 3, 3, 3, 9, 9 };
    int32_t got[5];

    (void)state;
    solve(cost, 5, 2, got);
    assert_true(got[0] == -1 && got[1] >= 0 && got[2] >= 0 && got[1] != got[2] && got[3] == -1 && got[4] == -1);
}

/* Costs of coarse boxes and nothing else are whole numbers, most of them equal to others. Every device must choose as
 * assign_solve() does for these numbers, made in another way. */
static void ties_on_devices(void **state)
{
    static const int n[SET_SHARDS] = { 3, 2, 3 }, counts[8] = { 1, 40, 41, 0, 90, 39, 7, 33 };

    (void)state;
    for (int step = 16; step <= 64; step *= 2) {
        struct set_case *c = set_case_new(SET_P, 3, n, counts, SET_SHARDS, (float)step);
        struct set_result *r;

        c->head.cls_gain = c->head.giou_gain = 0;
        c->head.l1_gain = 1;
        c->head.stages = 1;
        r = set_run(c);
        for (int v = 0; v < SET_SHARDS; v++)
            for (int i = 0; i < n[v]; i++) {
                int from = c->offset[v][i], truths = c->offset[v][i + 1] - from;
                int64_t cost[SET_P * 100];
                int32_t want[SET_P];

                for (int p = 0; p < SET_P; p++)
                    for (int t = 0; t < truths; t++) { /* sides are 512 x 256 */
                        const float *a = c->base[v] + (i * SET_P + p) * 4, *b = c->truth[v][from + t];

                        cost[p * truths + t] = (int64_t)(fabsf(a[0] - b[0]) + fabsf(a[2] - b[2])) * 32768 +
                                               (int64_t)(fabsf(a[1] - b[1]) + fabsf(a[3] - b[3])) * 65536;
                    }
                solve(cost, SET_P, truths, want);
                for (int p = 0; p < SET_P; p++)
                    assert_int_equal(r->match[v][i * SET_P + p], want[p] < 0 ? -1 : from + want[p]);
            }
        free(r);
        free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(vectors), cmocka_unit_test(least_of_all), cmocka_unit_test(equal_proposals),
                                        cmocka_unit_test(ties_on_devices) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
