/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/read/coco/test_masks.c
 * uses: proto worker/core worker/mask worker/data
 * Segmentations of a data set: the masks kept in each form, the refused ones, and no cost for jobs without masks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/stand/harness.h"
#include "worker/data/read/check.h"
#include "worker/data/read/coco/coco.h"
#include "worker/data/set/problems.h"

#define DATA "../shared/data"

static struct problems problems;

static int read_set(const char *annotations, const char *images, bool masks, enum bad_policy on_bad, struct dataset **ret, struct err *err)
{
    return coco_read(&(struct coco_options){ .annotations = annotations, .images = images, .on_bad = on_bad, .masks = masks }, &problems,
                     ret, err);
}

static int read_text(const char *text, bool masks, enum bad_policy on_bad, struct dataset **ret, struct err *err)
{
    char path[TEMP_MAX];
    int rc, fd = mkstemp(temp_path(path, sizeof path, "detd-masks-XXXXXX"));
    FILE *f = fdopen(fd, "w");

    fputs(text, f);
    fclose(f);
    memset(&problems, 0, sizeof problems);
    rc = read_set(path, "nowhere", masks, on_bad, ret, err);
    unlink(path);
    return rc;
}

#define HEAD                                                                                                                         \
    "{\"categories\": [{\"id\": 1, \"name\": \"x\"}], \"images\": [{\"id\": 8, \"file_name\": \"b\", \"width\": 4, \"height\": 3}, " \
    "{\"id\": 7, \"file_name\": \"a\", \"width\": 4, \"height\": 3}], \"annotations\": ["
#define BOX "\"category_id\": 1, \"bbox\": [0, 0, 2, 2]"

/* Reads a single annotation of image 7 with these additional members. */
static int read_one(const char *members, bool masks, enum bad_policy on_bad, struct dataset **ret, struct err *err)
{
    char text[1024];

    snprintf(text, sizeof text, HEAD "{\"id\": 5, \"image_id\": 7, " BOX "%s%s}]}", *members ? ", " : "", members);
    return read_text(text, masks, on_bad, ret, err);
}

static void assert_runs(struct mask m, const uint32_t *want, int n)
{
    assert_int_equal(m.kind, MASK_RUNS);
    assert_int_equal(m.n, n);
    assert_memory_equal(m.run, want, (size_t)n * sizeof *want);
}

/* Annotations come in another order than their images, and one of them is left out. */
static void each_form_is_kept_by_its_box(void **state)
{
    static const char text[] =
        HEAD "{\"id\": 1, \"image_id\": 8, " BOX ", \"segmentation\": {\"size\": [3, 4], \"counts\": \"532\\u004f\"}},"
             "{\"id\": 2, \"image_id\": 7, " BOX ", \"segmentation\": [[0, 0, 2.5, 0, 2, 1e0], [1, 1, 3, 1, 3, 2, -1.25, 2]]},"
             "{\"id\": 3, \"image_id\": 7, " BOX ", \"segmentation\": [[0, 0, 2, 0, 2]]},"
             "{\"id\": 4, \"image_id\": 7, " BOX ", \"iscrowd\": 1, \"segmentation\": {\"counts\": [0, 5, 7], \"size\": [3, 4]}},"
             "{\"id\": 5, \"image_id\": 8, " BOX ", \"iscrowd\": 1, \"segmentation\": []},"
             "{\"id\": 6, \"image_id\": 7, " BOX ", \"segmentation\": [[0, 0, 0, 3, 4, 3]]}]}";
    static const uint32_t bottom[] = { 5, 3, 2, 2 }, top[] = { 0, 5, 7 };
    struct dataset *d;
    struct err err = { 0 };
    struct mask m;

    (void)state;
    if (read_text(text, true, BAD_SKIP, &d, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(problems.count, 1);
    assert_int_equal(d->offset[2], 5);
    m = dataset_mask(d, 0); /* id 2 */
    assert_true(d->boxes[0].id == 2 && m.kind == MASK_POLYGONS && m.n == 2);
    assert_int_equal(m.first[1] - m.first[0], 3);
    assert_int_equal(m.first[2] - m.first[1], 4);
    assert_true(m.xy[m.first[0] + 1][0] == 2.5 && m.xy[m.first[0] + 2][1] == 1 && m.xy[m.first[1] + 3][0] == -1.25);
    assert_runs(dataset_mask(d, 1), top, 3);
    m = dataset_mask(d, 2);
    assert_true(d->boxes[2].id == 6 && m.kind == MASK_POLYGONS && m.n == 1 && m.first[1] - m.first[0] == 3);
    assert_true(m.xy[m.first[0] + 2][0] == 4 && m.xy[m.first[0] + 2][1] == 3);
    assert_runs(dataset_mask(d, 3), bottom, 4);
    assert_int_equal(dataset_mask(d, 4).kind, MASK_NONE);
    dataset_free(d);
    assert_int_equal(read_text(text, false, BAD_SKIP, &d, &err), 0);
    assert_null(d->masks);
    assert_int_equal(dataset_mask(d, 0).kind, MASK_NONE);
    dataset_free(d);
}

/* Annotations that are bad only if masks are requested: boxes alone do not need them. */
static void what_masks_need(void **state)
{
    static const struct {
        const char *members, *flaw; /* flaw NULL: no flaw */
    } rows[] = {
        { "", "annotation 5 (line 1): has no segmentation, and its mask is asked for" },
        { "\"segmentation\": []", "has no segmentation" },
        { "\"segmentation\": null", "has no segmentation" },
        { "\"segmentation\": [[5, 0, 9, 0, 9, 3]]", "annotation 5 (line 1): its segmentation lies outside its image" },
        { "\"segmentation\": [[0, 3, 4, 3, 4, 9]]", "lies outside its image" },
        { "\"segmentation\": [[-4, 0, 0, 0, 0, 3]]", "lies outside its image" },
        { "\"segmentation\": [[5, 0, 9, 0, 9, 3], [0, 0, 1, 0, 1, 1]]", NULL },
        { "\"segmentation\": [[-9, -9, 99, -9, 99, 99, -9, 99]]", NULL },
        { "\"segmentation\": {\"size\": [3, 4], \"counts\": [12]}", "annotation 5 (line 1): its segmentation is empty" },
        { "\"segmentation\": {\"size\": [3, 4], \"counts\": [4, 0, 8]}", "its segmentation is empty" },
        { "\"segmentation\": {\"size\": [3, 4], \"counts\": [4, 1, 7]}", NULL },
        { "\"segmentation\": {\"note\": [1, 2], \"size\": [3, 4], \"more\": \"x\", \"counts\": [4, 1, 7]}", NULL },
        { "\"segmentation\": [[0, 0, 2e7, 0, 2, 2]]", "a polygon holds an impossible number" },
        { "\"segmentation\": [[0, 0, 2, -1e300, 2, 2]]", "a polygon holds an impossible number" },
        { "\"segmentation\": [[0, 0, 2, 1e999, 2, 2]]", "a polygon holds an impossible number" },
        { "\"iscrowd\": 1", NULL },
        { "\"iscrowd\": 1, \"segmentation\": [[5, 0, 9, 0, 9, 3]]", NULL },
        { "\"iscrowd\": 1, \"segmentation\": {\"size\": [3, 4], \"counts\": [12]}", NULL },
    };
    struct dataset *d;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        err = (struct err){ 0 };
        assert_int_equal(read_one(rows[i].members, false, BAD_ERROR, &d, &err), 0);
        dataset_free(d);
        if (!rows[i].flaw) {
            if (read_one(rows[i].members, true, BAD_ERROR, &d, &err) != 0)
                fail_msg("%s: %s", rows[i].members, err.msg);
            dataset_free(d);
            continue;
        }
        if (read_one(rows[i].members, true, BAD_ERROR, &d, &err) != ERR_DATA || !strstr(err.msg, rows[i].flaw))
            fail_msg("%s: '%s'", rows[i].members, err.msg);
        assert_int_equal(read_one(rows[i].members, true, BAD_SKIP, &d, &err), 0);
        assert_int_equal(problems.count, 1);
        assert_int_equal(d->offset[2], 0);
        dataset_free(d);
    }
}

/* A flaw in the middle takes back the polygons kept before it; the next segmentation is whole. */
static void nothing_of_a_bad_one_is_kept(void **state)
{
    static const char text[] =
        HEAD "{\"id\": 1, \"image_id\": 7, " BOX ", \"segmentation\": [[0, 0, 2, 0, 2, 2], [1, 1, 2, 2, 3, \"x\"], [1, 1, 2, 2, 3, 3]]},"
             "{\"id\": 2, \"image_id\": 7, " BOX ", \"segmentation\": {\"size\": [3, 4], \"counts\": [1, 2, 3]}},"
             "{\"id\": 3, \"image_id\": 7, " BOX ", \"segmentation\": {\"size\": [3, 4], \"counts\": \"11~\"}},"
             "{\"id\": 4, \"image_id\": 7, " BOX ", \"segmentation\": [[3, 0, 3, 3, 1, 1]]},"
             "{\"id\": 5, \"image_id\": 7, " BOX ", \"segmentation\": {\"size\": [3, 4], \"counts\": [2, 10]}}]}";
    static const uint32_t want[] = { 2, 10 };
    struct dataset *d;
    struct err err = { 0 };
    struct mask m;

    (void)state;
    assert_int_equal(read_text(text, true, BAD_SKIP, &d, &err), 0);
    assert_int_equal(problems.count, 3);
    assert_true(d->masks->npolygons == 1 && d->masks->npoints == 3 && d->masks->nruns == 2);
    m = dataset_mask(d, 0);
    assert_true(m.kind == MASK_POLYGONS && m.n == 1 && m.xy[m.first[0]][0] == 3 && m.first[1] - m.first[0] == 3);
    assert_runs(dataset_mask(d, 1), want, 2);
    dataset_free(d);
}

/* Polygons that are odd or too short are left out alone, and are counted once for their object. The object is left out
 * only if no other polygon is left. */
static void short_polygons_go_alone(void **state)
{
    static const char text[] =
        HEAD "{\"id\": 1, \"image_id\": 7, " BOX
             ", \"segmentation\": [[1, 1, 2, 2], [0, 0, 2, 0, 2, 2], [1, 1, 2], [], [1, 1, 3, 1, 3, 2, 1, 2]]},"
             "{\"id\": 2, \"image_id\": 7, " BOX ", \"segmentation\": [[3, 0, 3, 3, 1, 1], [0, 0, 1, 0, 1, 1, 9]]},"
             "{\"id\": 3, \"image_id\": 7, " BOX ", \"segmentation\": [[1, 1, 2], [1, 1, 2, 2]]},"
             "{\"id\": 4, \"image_id\": 8, " BOX ", \"segmentation\": [[1, 1, 2], [0, 0, 3, 0, 3, 3], [\"x\", 1, 2, 2, 3, 3]]},"
             "{\"id\": 5, \"image_id\": 8, " BOX ", \"segmentation\": [[2, 0, 3, 3, 1, 1]]}]}";
    struct dataset *d;
    struct err err = { 0 };
    struct mask m;

    (void)state;
    assert_int_equal(read_text(text, true, BAD_SKIP, &d, &err), 0);
    assert_true(problems.count == 2 && problems.notes == 2);
    assert_non_null(strstr(problems.note[0], "annotation 1 (line 1): segmentation: a polygon has fewer than three points"));
    assert_non_null(strstr(problems.note[1], "annotation 2 (line 1): segmentation: a polygon has an odd number of coordinates"));
    assert_non_null(strstr(problems.text[0], "annotation 3 (line 1): segmentation: a polygon has an odd number of coordinates"));
    assert_non_null(strstr(problems.text[1], "annotation 4 (line 1): segmentation: a polygon holds something that is not a number"));
    assert_true(d->offset[2] == 3 && d->boxes[0].id == 1 && d->boxes[1].id == 2 && d->boxes[2].id == 5);
    m = dataset_mask(d, 0);
    assert_true(m.kind == MASK_POLYGONS && m.n == 2 && m.first[1] - m.first[0] == 3 && m.first[2] - m.first[1] == 4);
    assert_true(m.xy[m.first[0] + 2][1] == 2 && m.xy[m.first[1]][0] == 1 && m.xy[m.first[1] + 3][1] == 2);
    m = dataset_mask(d, 1);
    assert_true(m.kind == MASK_POLYGONS && m.n == 1 && m.xy[m.first[0]][0] == 3 && m.first[1] - m.first[0] == 3);
    m = dataset_mask(d, 2);
    assert_true(m.n == 1 && m.xy[m.first[0]][0] == 2);
    assert_true(d->masks->npolygons == 4 && d->masks->npoints == 13);
    dataset_free(d);
    assert_int_equal(read_text(text, false, BAD_SKIP, &d, &err), 0);
    assert_true(problems.count == 0 && problems.notes == 4 && d->offset[2] == 5);
    dataset_free(d);
    assert_int_equal(read_text(text, true, BAD_KEEP, &d, &err), ERR_DATA);
    assert_int_equal(read_text(text, true, BAD_ERROR, &d, &err), ERR_DATA);
    assert_non_null(
        strstr(err.msg, "2 problems (data.on_bad=skip leaves out bad records): annotation 3 (line 1): segmentation: a polygon has"));
}

static void too_many_polygons_are_told(void **state)
{
    char *text = malloc(64 * (size_t)(MASK_MAX_POLYGONS + 2)), *p = text;
    struct dataset *d;
    struct err err = { 0 };

    (void)state;
    p += sprintf(p, HEAD "{\"id\": 5, \"image_id\": 7, " BOX ", \"segmentation\": [");
    for (int i = 0; i <= MASK_MAX_POLYGONS; i++)
        p += sprintf(p, "%s[0,0,1,0,1,1]", i ? "," : "");
    sprintf(p, "]}]}");
    assert_int_equal(read_text(text, true, BAD_ERROR, &d, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "annotation 5 (line 1): segmentation: more polygons or points than any object needs"));
    assert_int_equal(read_text(text, false, BAD_ERROR, &d, &err), 0);
    dataset_free(d);
    free(text);
}

/* ---- real files ---- */

static bool have_data(void)
{
    return access(DATA "/odd_json/ok_base.json", R_OK) == 0;
}

static int64_t pixels(struct mask m)
{
    int64_t n = 0;

    for (int i = 0; i < m.n; i++)
        n += m.run[i];
    return n;
}

static void real_sets_are_whole(void **state)
{
    struct dataset *d;
    struct err err = { 0 };
    int64_t points = 0, set;

    (void)state;
    if (!have_data())
        SKIP("no " DATA "/odd_json");
    assert_int_equal(read_set(DATA "/nuclei/train_rle.json", "nowhere", true, BAD_ERROR, &d, &err), 0);
    assert_int_equal(d->offset[d->nimages], 11823);
    for (int i = 0; i < d->nimages; i++)
        for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++) {
            struct mask m = dataset_mask(d, k);

            set = 0;
            for (int r = 1; r < m.n; r += 2)
                set += m.run[r];
            assert_true(m.kind == MASK_RUNS && pixels(m) == (int64_t)d->images[i].w * d->images[i].h);
            assert_true((double)set == d->boxes[k].area);
        }
    dataset_free(d);
    assert_int_equal(read_set(DATA "/coco_tiny/instances_val.json", "nowhere", true, BAD_ERROR, &d, &err), 0);
    for (int64_t k = 0; k < d->offset[d->nimages]; k++) {
        struct mask m = dataset_mask(d, k);

        assert_int_equal(m.kind, d->boxes[k].crowd ? MASK_RUNS : MASK_POLYGONS);
        points += m.kind == MASK_POLYGONS ? m.first[m.n] - m.first[0] : 0;
    }
    assert_int_equal(points, d->masks->npoints);
    dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_form_is_kept_by_its_box), cmocka_unit_test(what_masks_need),
        cmocka_unit_test(nothing_of_a_bad_one_is_kept), cmocka_unit_test(short_polygons_go_alone),
        cmocka_unit_test(too_many_polygons_are_told),   cmocka_unit_test(real_sets_are_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
