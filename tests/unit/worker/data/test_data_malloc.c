/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/core worker/mask worker/data
 * tests/unit/worker/data/test_data_malloc.c - Every allocation of our own code in reading, checking, indexing and
 * loading a data set fails in turn: an error each time, nothing lost, no crash. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/stand/harness.h"
#include "tests/stand/jpeg.h"
#include "tests/unit/worker/data/read/frames/frames_set.h"
#include "worker/data/read/check.h"
#include "worker/data/image/image.h"
#include "worker/data/read/labels/labels.h"
#include "worker/data/loader.h"
#include "worker/data/sample/boxes.h"
#include "worker/data/sample/frames.h"
#include "worker/data/sample/instances.h"
#include "worker/data/set/problems.h"

/* Sanitizers have an allocator of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static void every_allocation_may_fail(void **state)
{
    (void)state;
    SKIP("a sanitizer has an allocator of its own");
}
#else

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *p);

static atomic_long until_failure = -1, failures, living; /* -1: no allocation fails */

/* Only allocations by our code fail: libraries have leaks of their own when memory runs out. */
static bool ours(const void *caller)
{
    extern char __executable_start, etext;

    return (const char *)caller >= &__executable_start && (const char *)caller < &etext;
}

static bool fails(const void *caller)
{
    long left = atomic_load(&until_failure);

    if (!ours(caller))
        return false;
    while (left > 0 && !atomic_compare_exchange_weak(&until_failure, &left, left - 1))
        ;
    atomic_fetch_add(&failures, left == 0);
    return left == 0;
}

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add(&living, 1);
    return p;
}

void *malloc(size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
    if (fails(__builtin_return_address(0)))
        return NULL;
    return p ? __libc_realloc(p, size) : counted(__libc_realloc(NULL, size));
}

void *aligned_alloc(size_t align, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : counted(__libc_memalign(align, size));
}

void free(void *p)
{
    if (p)
        atomic_fetch_sub(&living, 1);
    __libc_free(p);
}

static char dir[TEMP_MAX], json[TEMP_MAX + 16], list[TEMP_MAX + 16];
static struct check_options opt = { .annotations = json, .images = dir, .on_bad = BAD_SKIP, .threads = 1, .masks = true };
static struct problems problems;

static int read_and_check(struct err *err)
{
    struct dataset *d;
    int rc = check_split(&opt, &problems, &d, err);

    problems = (struct problems){ 0 };
    if (rc < 0)
        return rc;
    rc = index_write(list, d, err);
    dataset_free(d);
    return rc;
}

static int load_index(struct err *err)
{
    struct dataset *d;
    int rc = index_load(list, &opt, &d, err);

    if (rc == 0)
        dataset_free(d);
    return rc;
}

/* With samples of any task. Frees task and data set. */
static int load_all(struct dataset *d, struct task *task, struct err *err)
{
    struct loader_options o = {
        .train = true, .batch = 2, .shards = 1, .shard_hi = 1, .waves = 1, .first_step = 1, .steps = 3, .workers = 1
    };
    struct loader *l;
    struct batch b;
    int rc = loader_open(task, &o, &l, err);

    if (rc == 0) {
        while ((rc = loader_next(l, &b, err)) == 0)
            ;
        loader_close(l);
    }
    task_free(task);
    dataset_free(d);
    return rc < 0 ? rc : 0;
}

static int load_batches(struct err *err)
{
    const struct boxes_options boxes = { .train = true,
                                         .steps = 3,
                                         .scales = { { 32, 32 }, 32, 32, 32, 32 },
                                         .augment = { .saturation = 1, .exposure = 1 },
                                         .cache_bytes = 4096 };
    struct dataset *d;
    struct task *task;
    int rc = index_load(list, &opt, &d, err);

    if (rc < 0)
        return rc;
    rc = boxes_open(d, &boxes, &task, err);
    if (rc < 0)
        dataset_free(d);
    return rc < 0 ? rc : load_all(d, task, err);
}

static int load_instances(enum resize_rule rule, struct err *err)
{
    const struct instances_options instances = { .train = true,
                                                 .rule = rule,
                                                 .nsizes = 2,
                                                 .size = { 16, 24 },
                                                 .longest = 40,
                                                 .grain = 32,
                                                 .flip = 0.5f,
                                                 .groups = true,
                                                 .keep_empty = true };
    struct dataset *d;
    struct task *task;
    int rc = index_load(list, &opt, &d, err);

    if (rc < 0)
        return rc;
    rc = instances_open(d, &instances, &task, err);
    if (rc < 0)
        dataset_free(d);
    return rc < 0 ? rc : load_all(d, task, err);
}

static int load_instances_d2(struct err *err)
{
    return load_instances(RESIZE_D2, err);
}

static int load_instances_tv(struct err *err)
{
    return load_instances(RESIZE_TV, err);
}

/* Frames of two sequences with a depth each, read, checked, kept and made into samples. */
static struct tree frames;

static int load_frames(struct err *err)
{
    const struct frames_task_options o = {
        .train = true, .nsources = 2, .canvas = { 8, 12 }, .flip = 0.5f, .jitter_prob = 0.5f, .cache_bytes = 4096
    };
    struct dataset *d;
    struct task *task;
    int rc = check_split(&frames.opt, &frames.problems, &d, err);

    frames.problems = (struct problems){ 0 };
    if (rc < 0)
        return rc;
    rc = index_write(list, d, err);
    dataset_free(d);
    if (rc == 0)
        rc = index_load(list, &frames.opt, &d, err);
    if (rc < 0)
        return rc;
    rc = frames_open(d, &o, &task, err);
    if (rc < 0)
        dataset_free(d);
    return rc < 0 ? rc : load_all(d, task, err);
}

static void frames_tree(bool kitti)
{
    static const char *const files[] = { "sequences/a/frames/%d.png", "d/r/image_02/data/%010d.png" };
    char file[64];

    tree_new(&frames);
    frames.opt.threads = 1;
    frames.frames.kitti = kitti;
    tree_text(&frames, "sequences/a/intrinsics.json",
              "{\"per_frame\": {\"1\": {\"fx\": 30, \"fy\": 31, \"cx\": 20, \"cy\": 14}}, \"width\": 41, \"height\": 30}");
    tree_depth(&frames, "sequences/a/depth/1.png", 1, FRAME_W, FRAME_H);
    tree_text(&frames, "d/calib_cam_to_cam.txt",
              "S_rect_02: 41 30\nP_rect_02: 30 0 20 1 0 31 14 0 0 0 1 0\nS_rect_03: 41 30\nP_rect_03: 30 0 20 -9 0 31 14 0 0 0 1 0\n"
              "R_rect_00: 1 0 0 0 1 0 0 0 1\n");
    tree_text(&frames, "d/calib_velo_to_cam.txt", "R: 0 -1 0 0 0 -1 1 0 0\nT: 0 0 -0.3\n");
    tree_text(&frames, "d/r/velodyne_points/data/0000000001.bin", "0123456789abcde\n");
    for (int i = 0; i < 3; i++) {
        snprintf(file, sizeof file, files[kitti], i);
        tree_frame(&frames, file, i, FRAME_W, FRAME_H);
    }
    tree_text(&frames, "list.txt", kitti ? "d/r 1\n" : "a 1\n");
}

/* Labels in many files: outlines, doubles, unknown keys, pictures without labels. */
static struct tree labels;

static int load_labels(enum labels_form form, const char *annotations, struct err *err)
{
    char path[TEMP_MAX + 32], index[TEMP_MAX + 32];
    const struct labels_options o = { .form = form, .annotations = path, .masks = form == LABELS_YOLO };
    const struct check_options check = { .annotations = path, .on_bad = BAD_SKIP, .threads = 1, .masks = o.masks, .labels = &o };
    static struct problems told;
    struct dataset *d;
    int rc;

    snprintf(path, sizeof path, "%s/%s", labels.dir, annotations);
    snprintf(index, sizeof index, "%s/index", labels.dir);
    memset(&told, 0, sizeof told);
    rc = check_split(&check, &told, &d, err);
    if (rc < 0)
        return rc;
    rc = index_write(index, d, err);
    dataset_free(d);
    return rc;
}

static int load_yolo(struct err *err)
{
    return load_labels(LABELS_YOLO, "data.yaml", err);
}

static int load_darknet(struct err *err)
{
    return load_labels(LABELS_DARKNET, "obj.data", err);
}

static int load_voc(struct err *err)
{
    return load_labels(LABELS_VOC, "images", err);
}

static void labels_tree(void)
{
    tree_new(&labels);
    tree_frame(&labels, "images/a.png", 1, 16, 12);
    tree_frame(&labels, "images/b.PNG", 1, 16, 12);
    tree_frame(&labels, "images/c.png", 2, 16, 12);
    tree_text(&labels, "images/notes.md", "no picture");
    tree_text(&labels, "data.yaml", "train: images\nnc: 2\nlost: 1\n");
    tree_text(&labels, "obj.data", "train=list.txt\nnames=obj.names\nlost=1\n");
    tree_text(&labels, "obj.names", "cat\ndog\n");
    tree_text(&labels, "list.txt", "images/a.png\nimages/b.PNG\n");
    tree_text(&labels, "labels/a.txt", "0 .1 .1 .5 .1 .5 .5\n0 .1 .1 .5 .1 .5 .5\n1 .1 .1 .5 .1 .5 .5 .1 .5\n");
    tree_text(&labels, "labels/b.txt", "1 .5 .5 .5 .5\n1 .5 .5 .5 .5\n");
    tree_text(&labels, "images/a.xml",
              "<annotation><odd/><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></"
              "object></annotation>");
}

/* Fails allocation after allocation until a run needs no more of them. may_do: a run may succeed in spite of some
 * failures (a cache not filled, masks not shrunk). */
static void fail_each(const char *what, int (*run)(struct err *err), bool may_do)
{
    struct err err = { 0 };
    long before, n;
    int rc = run(&err); /* in this first run libraries allocate memory that they keep for ever */

    before = atomic_load(&living);
    for (n = 0; n < 10000; n++) {
        atomic_store(&failures, 0);
        atomic_store(&until_failure, n);
        rc = run(&err);
        atomic_store(&until_failure, -1);

        if (atomic_load(&living) != before)
            fail_msg("%s: allocation %ld: %ld blocks lost", what, n, atomic_load(&living) - before);
        if (rc == 0 && atomic_load(&failures) == 0)
            break;
        if (rc == 0 ? !may_do : err.msg[0] == '\0')
            fail_msg("%s: allocation %ld: rc %d '%s'", what, n, rc, err.msg);
    }
    if (rc != 0 || n == 0)
        fail_msg("%s: %ld allocations, then %d '%s'", what, n, rc, err.msg);
}

static void every_allocation_may_fail(void **state)
{
    static const uint8_t rgb[16 * 12 * 3] = { 1, 2, 3 };
    char path[3][TEMP_MAX + 16];
    struct err err = { 0 };
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(temp_path(dir, sizeof dir, "detd-malloc-XXXXXX")));
    snprintf(json, sizeof json, "%s/a.json", dir);
    snprintf(list, sizeof list, "%s/index", dir);
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d", dir, i);
        if (i)
            assert_int_equal(image_write_png(path[i], rgb, 16, 12, &err), 0);
        else
            write_jpeg(path[i], rgb, 16, 12, 90);
    }
    f = fopen(json, "w");
    fprintf(f, "{\"images\": [{\"id\": 1, \"file_name\": \"0\"}, {\"id\": 2, \"file_name\": \"1\"}, {\"id\": 3, \"file_name\": \"2\"}],"
               "\"categories\": [{\"id\": 1, \"name\": \"x\"}], \"annotations\": [{\"id\": 1, \"image_id\": 1, \"category_id\": 1,"
               "\"bbox\": [1, 1, 5, 5], \"segmentation\": {\"size\": [12, 16], \"counts\": [5, 7, 180]}},"
               "{\"id\": 2, \"image_id\": 2, \"category_id\": 1, \"bbox\": [1, 1, 5, 5], \"segmentation\": [[1, 1, 5, 1, 5, 5]]}]}");
    fclose(f);
    fail_each("check", read_and_check, true);
    fail_each("index", load_index, true);
    fail_each("loader", load_batches, true);
    fail_each("instances, d2", load_instances_d2, true);
    fail_each("instances, tv", load_instances_tv, true);
    for (int kitti = 0; kitti < 2; kitti++) {
        frames_tree(kitti);
        fail_each(kitti ? "frames, kitti" : "frames", load_frames, true);
        tree_free(&frames);
    }
    labels_tree();
    fail_each("yolo", load_yolo, true);
    fail_each("darknet", load_darknet, true);
    fail_each("voc", load_voc, true);
    tree_free(&labels);
    for (int i = 0; i < 3; i++)
        unlink(path[i]);
    unlink(json);
    unlink(list);
    assert_int_equal(rmdir(dir), 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_allocation_may_fail) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
