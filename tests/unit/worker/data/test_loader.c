/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/test_loader.c
 * uses: proto worker/core worker/mask worker/data
 * The stream of batches is always the same: threads, memory, ranks, waves and the step of a resume change no bit. */
#include <assert.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
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
#include "proto/hash/hash.h"
#include "worker/core/stress.h"
#include "worker/data/make/cache.h"
#include "worker/data/read/check.h"
#include "worker/data/image/image.h"
#include "worker/data/loader.h"
#include "worker/data/make/pictures.h"
#include "worker/data/set/problems.h"
#include "worker/data/sample/boxes.h"
#include "worker/data/make/sampler.h"

enum { IMAGES = 11, BATCH = 8, SHARDS = 4, STEPS = 12 };

struct fixture {
    char dir[TEMP_MAX];
    struct dataset *d;
};

static void write_image(const char *dir, int i)
{
    int w = 20 + 13 * (i % 4), h = 18 + 7 * (i % 5);
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 3);
    char path[128];
    struct err err = { 0 };

    for (int k = 0; k < w * h * 3; k++)
        rgb[k] = (uint8_t)(k * (i + 3) + i * 50);
    snprintf(path, sizeof path, "%s/%d.png", dir, i);
    assert_int_equal(image_write_png(path, rgb, w, h, &err), 0);
    free(rgb);
}

/* Image i has i % 4 boxes; every third box is a crowd. */
static void write_annotations(const char *path)
{
    FILE *f = fopen(path, "w");
    int id = 0;

    fprintf(f, "{\"categories\": [{\"id\": 5, \"name\": \"a\"}, {\"id\": 2, \"name\": \"b\"}], \"images\": [");
    for (int i = 0; i < IMAGES; i++)
        fprintf(f, "%s{\"id\": %d, \"file_name\": \"%d.png\"}", i ? ", " : "", i + 100, i);
    fprintf(f, "], \"annotations\": [");
    for (int i = 0; i < IMAGES; i++)
        for (int k = 0; k < i % 4; k++, id++)
            fprintf(f, "%s{\"id\": %d, \"image_id\": %d, \"category_id\": %d, \"bbox\": [%d, 2, 7, 9.5], \"iscrowd\": %d}", id ? ", " : "",
                    id + 1, i + 100, k % 2 ? 5 : 2, 1 + 3 * k, k == 2);
    fprintf(f, "]}");
    fclose(f);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct problems *p = calloc(1, sizeof *p);
    char path[128];
    struct err err = { 0 };

    assert_non_null(mkdtemp(temp_path(f->dir, sizeof f->dir, "detd-loader-XXXXXX")));
    for (int i = 0; i < IMAGES; i++)
        write_image(f->dir, i);
    snprintf(path, sizeof path, "%s/a.json", f->dir);
    write_annotations(path);
    if (check_split(&(struct check_options){ .annotations = path, .images = f->dir, .on_bad = BAD_ERROR, .threads = 2 }, p, &f->d, &err) !=
        0)
        fail_msg("%s", err.msg);
    free(p);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char path[128];

    for (int i = 0; i < IMAGES; i++) {
        snprintf(path, sizeof path, "%s/%d.png", f->dir, i);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/a.json", f->dir);
    unlink(path);
    assert_int_equal(rmdir(f->dir), 0);
    dataset_free(f->d);
    free(f);
    return 0;
}

static struct boxes_options drawn(void)
{
    return (struct boxes_options){
        .train = true,
        .seed = 9,
        .steps = STEPS,
        .scales = { { 48, 64 }, 32, 96, 32, 16 },
        .augment = { .flip = 0.5f, .vflip = 0.2f, .jitter = 0.3f, .scale = 0.2f, .hue = 0.1f, .saturation = 1.5f, .exposure = 1.5f },
    };
}

static struct task *task_of(const struct dataset *d, struct boxes_options o)
{
    struct task *t;
    struct err err = { 0 };

    if (boxes_open(d, &o, &t, &err) < 0)
        fail_msg("%s", err.msg);
    return t;
}

static struct loader_options training(void)
{
    return (struct loader_options){
        .train = true,
        .batch = BATCH,
        .shards = SHARDS,
        .shard_hi = SHARDS,
        .waves = 1,
        .first_step = 1,
        .steps = STEPS,
        .on_bad = BAD_ERROR,
        .workers = 1,
    };
}

static uint64_t hash_shard(const struct batch *b, const struct shard_batch *s)
{
    struct hash128 h = hash_bytes(s->index, (size_t)s->n * sizeof(int32_t), 5);

    for (int i = 0; i < b->form->narrays; i++)
        h = hash_fold(h, hash_bytes(s->array[i], batch_bytes(b->form, s, i), (uint64_t)i));
    for (int l = 0; l < b->form->nlists; l++)
        h = hash_fold(h, hash_bytes(s->offset[l], ((size_t)batch_rows(s, b->form->list[l].of) + 1) * sizeof(int32_t), 2));
    return h.lane[0];
}

/* Hash of every (step, shard) that a loader delivers; 0 where it delivers nothing. */
static void run_task(struct task *t, const struct loader_options *o, uint64_t ret[STEPS][SHARDS])
{
    struct loader *l;
    struct batch b;
    struct err err = { 0 };
    int rc;

    if (loader_open(t, o, &l, &err) != 0)
        fail_msg("%s", err.msg);
    while ((rc = loader_next(l, &b, &err)) == 0)
        for (int k = 0; k < b.nshards; k++) {
            assert_int_equal(b.shard[k].offset[0][b.shard[k].n], b.shard[k].rows[0]);
            assert_int_equal(b.epoch, stream_position(b.step, BATCH, SHARDS, b.shard[0].shard, 0) / t->samples);
            assert_int_equal(b.seed, t->seed);
            if (k > 0)
                assert_ptr_equal(b.shard[k].array[0], (char *)b.shard[k - 1].array[0] + batch_bytes(b.form, &b.shard[k - 1], 0));
            ret[b.step - 1][b.shard[k].shard] = hash_shard(&b, &b.shard[k]);
        }
    if (rc != LOADER_END)
        fail_msg("%s", err.msg);
    loader_close(l);
}

static void run(const struct dataset *d, const struct boxes_options *boxes, const struct loader_options *o, uint64_t ret[STEPS][SHARDS])
{
    struct task *t = task_of(d, *boxes);

    run_task(t, o, ret);
    task_free(t);
}

static void nothing_but_seed_and_step_matters(void **state)
{
    struct fixture *f = *state;
    static uint64_t want[STEPS][SHARDS], got[STEPS][SHARDS];
    struct loader_options o = training();
    struct boxes_options boxes = drawn();

    run(f->d, &boxes, &o, want);
    for (int variant = 0; variant < 6; variant++) {
        static const int cut[6][5] = { { 0, 4 }, { 0, 4 }, { 0, 2, 4 }, { 0, 1, 4 }, { 0, 1, 2, 3, 4 }, { 0, 4 } };

        memset(got, 0, sizeof got);
        o = training();
        o.workers = 1 + variant;
        boxes.cache_bytes = variant % 2 ? 1 << 20 : variant == 4 ? 10000 : 0;
        o.waves = variant == 5 ? 3 : 1 + variant % 3;
        for (int r = 0; cut[variant][r] < SHARDS; r++) {
            o.shard_lo = cut[variant][r];
            o.shard_hi = cut[variant][r + 1];
            run(f->d, &boxes, &o, got);
        }
        assert_memory_equal(got, want, sizeof want);
    }
    for (int workers = 1; workers <= 9; workers += 4) { /* the order in which pictures are made is forced */
        memset(got, 0, sizeof got);
        o = training();
        o.workers = workers;
        o.waves = 2;
        o.stress = &(const struct stress){ (uint64_t)workers, 0, 1 };
        run(f->d, &boxes, &o, got);
        assert_memory_equal(got, want, sizeof want);
    }
    o = training();
    o.first_step = 7;
    memset(got, 0, sizeof got);
    run(f->d, &boxes, &o, got);
    assert_memory_equal(got[6], want[6], (STEPS - 6) * sizeof want[0]);
    boxes.seed = 10;
    run(f->d, &boxes, &o, got);
    assert_memory_not_equal(got[6], want[6], (STEPS - 6) * sizeof want[0]);
}

static void waves_cover_the_shards(void **state)
{
    struct fixture *f = *state;
    struct loader_options o = training();
    struct loader *l;
    struct batch b;
    struct err err;
    int images = 0;
    struct task *t = task_of(f->d, drawn());

    o.waves = 6; /* more than shards: two are empty */
    o.shards = 4;
    assert_int_equal(loader_open(t, &o, &l, &err), 0);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(loader_next(l, &b, &err), 0);
        assert_int_equal(b.step, 1);
        assert_int_equal(b.shard[0].shard, k);
        assert_int_equal(b.last, k == 3);
        images += b.shard[0].n;
    }
    assert_int_equal(images, BATCH);
    loader_close(l);
    task_free(t);
}

/* Truth against the data set itself, through the letterbox. */
static void check_truth(const struct dataset *d, const struct shard_batch *s)
{
    for (int i = 0; i < s->n; i++) {
        const struct dataset_box *boxes = d->boxes + d->offset[s->index[i]];
        int row = s->offset[0][i];

        for (int k = 0; k < d->offset[s->index[i] + 1] - d->offset[s->index[i]]; k++) {
            const struct dataset_image *im = &d->images[s->index[i]];
            struct placement p = place_letterbox(im->w, im->h, s->canvas);
            const float *b = (const float *)s->array[2] + 4 * row, w = (float)s->canvas.w, h = (float)s->canvas.h;
            float corners[4] = { (b[0] - b[2] / 2) * w, (b[1] - b[3] / 2) * h, (b[0] + b[2] / 2) * w, (b[1] + b[3] / 2) * h };
            double back[4];

            if (boxes[k].crowd)
                continue;
            unplace_box(&p, im->w, im->h, corners, back);
            assert_int_equal(((const int32_t *)s->array[1])[row], boxes[k].cls);
            assert_float_equal(back[0], boxes[k].x, 1e-3);
            assert_float_equal(back[3], boxes[k].h, 1e-3);
            row++;
        }
        assert_int_equal(row, s->offset[0][i + 1]);
    }
}

static void validation_sees_each_image_once(void **state)
{
    struct fixture *f = *state;

    for (int ranks = 1; ranks <= 5; ranks++) {
        int seen[IMAGES] = { 0 };

        for (int rank = 0; rank < ranks; rank++) {
            struct loader_options o = { .batch = 3, .rank = rank, .ranks = ranks, .workers = 2 };
            struct task *t = task_of(f->d, (struct boxes_options){ .scales.nominal = { 32, 40 }, .cache_bytes = 1 << 20 });
            struct loader *l;
            struct batch b;
            struct err err;

            assert_int_equal(loader_open(t, &o, &l, &err), 0);
            if (ranks == 1) { /* a pass that is left in the middle does not show in the next */
                assert_int_equal(loader_next(l, &b, &err), 0);
                loader_rewind(l);
            }
            for (int pass = 0; pass < 2; pass++, loader_rewind(l))
                while (loader_next(l, &b, &err) == 0) {
                    assert_int_equal(b.nshards, 1);
                    assert_int_equal(b.shard[0].shard % ranks, rank);
                    assert_int_equal(b.shard[0].index[0], b.shard[0].shard * 3);
                    assert_int_equal(b.shard[0].n, b.shard[0].shard == 3 ? 2 : 3);
                    check_truth(f->d, &b.shard[0]);
                    for (int i = 0; i < b.shard[0].n; i++)
                        seen[b.shard[0].index[i]]++;
                }
            loader_close(l);
            task_free(t);
        }
        for (int i = 0; i < IMAGES; i++)
            assert_int_equal(seen[i], 2);
    }
}

static void lost_files_are_named_or_replaced(void **state)
{
    struct fixture *f = *state;
    static uint64_t one[STEPS][SHARDS], two[STEPS][SHARDS];
    struct loader_options o = training();
    struct boxes_options boxes = drawn();
    struct task *t = task_of(f->d, boxes);
    struct loader *l;
    struct batch b;
    struct err err = { 0 };
    char path[128];
    int rc;

    snprintf(path, sizeof path, "%s/4.png", f->dir);
    unlink(path);
    assert_int_equal(loader_open(t, &o, &l, &err), 0);
    while ((rc = loader_next(l, &b, &err)) == 0)
        ;
    assert_true(rc < 0);
    assert_non_null(strstr(err.msg, "4.png"));
    assert_non_null(strstr(err.msg, "; data.on_bad=skip would put another picture in its place"));
    assert_int_equal(loader_next(l, &b, &err), rc);
    loader_close(l);
    o.on_bad = BAD_SKIP;
    run(f->d, &boxes, &o, one);
    o.workers = 3;
    o.shard_hi = 2;
    run(f->d, &boxes, &o, two);
    o.shard_lo = 2;
    o.shard_hi = 4;
    run(f->d, &boxes, &o, two);
    assert_memory_equal(one, two, sizeof one);
    assert_int_equal(loader_open(t, &o, &l, &err), 0);
    while (loader_next(l, &b, &err) == 0)
        for (int k = 0; k < b.nshards; k++)
            for (int i = 0; i < b.shard[k].n; i++)
                assert_int_not_equal(b.shard[k].index[i], 4);
    loader_close(l);
    task_free(t);
    write_image(f->dir, 4);
}

/* If the set was not checked, as in predict, the error does not mention a check. */
static void a_picture_of_another_size(void **state)
{
    struct fixture *f = *state;
    struct dataset_image *im = &f->d->images[2], was = *im;
    struct pictures *p = pictures_new(f->d, 0);
    struct decoder *dec = decoder_new();
    const uint8_t *rgb;
    struct err err;

    im->w++;
    for (int checked = 0; checked < 2; checked++) {
        im->size_bytes = checked ? 99 : 0;
        assert_int_equal(pictures_get(p, dec, 2, &rgb, &err), ERR_DATA);
        assert_non_null(strstr(err.msg, checked ? "/2.png: is 46 x 32 pixels now, was 47 x 32 when it was checked"
                                                : "/2.png: is 46 x 32 pixels, and not 47 x 32 as its set has it"));
    }
    *im = was;
    decoder_free(dec);
    pictures_free(p);
}

/* A kept picture is not read again: its file may go. */
static void pictures_are_decoded_or_kept(void **state)
{
    struct fixture *f = *state;
    struct decoder *dec = decoder_new();
    const uint8_t *first, *again;
    struct err err;
    char path[128];

    snprintf(path, sizeof path, "%s/2.png", f->dir);
    for (int kept = 0; kept < 2; kept++) {
        struct pictures *p = pictures_new(f->d, kept ? 1 << 20 : 0);

        assert_int_equal(pictures_get(p, dec, 2, &first, &err), 0);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(pictures_get(p, dec, 2, &again, &err), kept ? 0 : -ENOENT);
        assert_true(!kept || memcmp(first, again, (size_t)f->d->images[2].w * (size_t)f->d->images[2].h * 3) == 0);
        pictures_free(p);
        write_image(f->dir, 2);
    }
    decoder_free(dec);
}

static void the_cache_keeps_to_its_limit(void **state)
{
    static const uint8_t rgb[61] = { 1, 2, 3 };
    struct cache *c = cache_new(4, 100);

    (void)state;
    cache_put(c, 0, rgb, 60);
    assert_memory_equal(cache_get(c, 0), rgb, 60);
    cache_put(c, 1, rgb, 41); /* one too many */
    assert_null(cache_get(c, 1));
    cache_put(c, 0, rgb, 40); /* is there */
    cache_put(c, 2, rgb, 40); /* just fits */
    assert_non_null(cache_get(c, 2));
    cache_put(c, 3, rgb, 1);
    assert_null(cache_get(c, 3));
    cache_free(c);
}

/* Each picture that stays keeps its own boxes. */
static void lost_pictures_leave_with_their_boxes(void **state)
{
    struct fixture *f = *state;
    struct problems *p = calloc(1, sizeof *p);
    char json[128], path[128];
    struct dataset *d;
    struct err err;

    snprintf(json, sizeof json, "%s/a.json", f->dir);
    for (int i = 1; i < 4; i += 2) {
        struct stat st;

        snprintf(path, sizeof path, "%s/%d.png", f->dir, i);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(truncate(path, st.st_size - 20), 0); /* the header, and so the size, can be read */
    }
    assert_int_equal(
        check_split(&(struct check_options){ .annotations = json, .images = f->dir, .on_bad = BAD_SKIP, .threads = 3 }, p, &d, &err), 0);
    assert_int_equal(p->count, 2);
    assert_true(d->nimages == IMAGES - 2 && d->max_boxes == 3); /* of picture 7; the last has 2 */
    for (int i = 0; i < d->nimages; i++) {
        int old = (int)d->images[i].id - 100;
        const struct dataset_box *boxes = d->boxes + d->offset[i], *before = f->d->boxes + f->d->offset[old];

        assert_true(old != 1 && old != 3);
        assert_int_equal(d->offset[i + 1] - d->offset[i], old % 4);
        for (int k = 0; k < old % 4; k++)
            assert_true(boxes[k].id == before[k].id && boxes[k].cls == before[k].cls && boxes[k].x == before[k].x &&
                        boxes[k].crowd == before[k].crowd);
    }
    dataset_free(d);
    free(p);
    write_image(f->dir, 1);
    write_image(f->dir, 3);
}

static void replace_by(const struct fixture *f, int i, int side)
{
    uint8_t *rgb = calloc((size_t)side * (size_t)side, 3);
    char path[128];
    struct err err;

    snprintf(path, sizeof path, "%s/%d.png", f->dir, i);
    if (side)
        assert_int_equal(image_write_png(path, rgb, side, side, &err), 0);
    else
        assert_int_equal(unlink(path), 0);
    free(rgb);
}

/* Another thread may find the other of two bad pictures first, after much decoding: the error always names the lower
 * index. */
static void the_first_of_two_bad_pictures_is_told(void **state)
{
    struct fixture *f = *state;

    for (int round = 0; round < 8; round++) {
        const struct stress forced = { (uint64_t)round, 0, 1 };
        struct loader_options o = { .batch = IMAGES, .ranks = 1, .workers = 8, .stress = round < 2 ? NULL : &forced };
        int slow = round % 2;
        struct task *t = task_of(f->d, (struct boxes_options){ .scales.nominal = { 32, 32 } });
        struct loader *l;
        struct batch b;
        struct err err;

        replace_by(f, 3, slow == 0 ? 1500 : 0);
        replace_by(f, 7, slow == 1 ? 1500 : 0);
        assert_int_equal(loader_open(t, &o, &l, &err), 0);
        assert_int_equal(loader_next(l, &b, &err), slow == 0 ? ERR_DATA : -ENOENT);
        assert_non_null(strstr(err.msg, "/3.png"));
        loader_close(l);
        task_free(t);
        write_image(f->dir, 3);
        write_image(f->dir, 7);
    }
}

/* ---- a task with as many rows in a sample as requested ---- */

enum { THINGS, POINTS, MOST_THINGS = 2, MOST_POINTS = 5 };

static int32_t rows_told[1 + MOST_THINGS]; /* things; points of each */

static struct canvas no_canvas(const struct task *t, int64_t step, const struct draw *draw, int n)
{
    (void)t, (void)step, (void)draw, (void)n;
    return (struct canvas){ 1, 1 };
}

static int make_told(struct task *t, struct hand *hand, int64_t step, struct draw draw, struct canvas canvas, const struct sample *ret,
                     struct err *err)
{
    (void)t, (void)hand, (void)step, (void)draw, (void)canvas, (void)err;
    assert(ret->room[THINGS] == MOST_THINGS && ret->room[POINTS] == MOST_POINTS);
    *ret->length[THINGS] = rows_told[0];
    for (int i = 0; i < rows_told[0] && i < ret->room[THINGS]; i++)
        ret->length[POINTS][i] = rows_told[1 + i];
    return 0;
}

static void nothing(struct task *t)
{
    (void)t;
}

static int batch_told(struct batch *ret, struct loader **ret_loader, struct err *err)
{
    static const struct task_ops ops = { no_canvas, make_told, nothing };
    static const struct batch_form form = { .nlists = 2, .list = { { "things", BATCH_IMAGES }, { "points", THINGS } } };
    static struct task task = {
        .ops = &ops, .form = &form, .samples = 3, .source = "made up", .largest = { 1, 1 }, .room = { MOST_THINGS, MOST_POINTS }
    };
    const struct loader_options o = { .batch = 3, .ranks = 1, .workers = 2 };

    assert_int_equal(loader_open(&task, &o, ret_loader, err), 0);
    return loader_next(*ret_loader, ret, err);
}

static void rows_keep_to_their_room(void **state)
{
    static const struct {
        int32_t told[1 + MOST_THINGS];
        const char *said;
    } over[] = {
        { { 3, 1, 1 }, "made up: sample 0 has 3 rows in list 'things', which has room for 2" },
        { { 2, 3, 3 }, "made up: sample 0 has 6 rows in list 'points', which has room for 5" },
        { { 2, 6, -1 }, "made up: sample 0 has 6 rows in list 'points', which has room for 5" },
        { { 2, INT32_MAX, INT32_MAX }, "made up: sample 0 has 2147483647 rows in list 'points', which has room for 5" },
        { { 2, 5, INT32_MAX }, "made up: sample 0 has 2147483652 rows in list 'points', which has room for 5" },
        { { -1, 0, 0 }, "made up: sample 0 has -1 rows in list 'things', which has room for 2" },
    };
    struct loader *l;
    struct batch b;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof over / sizeof *over; i++) {
        memcpy(rows_told, over[i].told, sizeof rows_told);
        assert_int_equal(batch_told(&b, &l, &err), ERR_DATA);
        assert_string_equal(err.msg, over[i].said);
        loader_close(l);
    }
    memcpy(rows_told, (int32_t[]){ 2, 1, 4 }, sizeof rows_told);
    assert_int_equal(batch_told(&b, &l, &err), 0);
    assert_true(b.shard[0].rows[THINGS] == 3 * MOST_THINGS && b.shard[0].rows[POINTS] == 3 * MOST_POINTS);
    for (int i = 0; i <= 3 * MOST_THINGS; i++)
        assert_int_equal(b.shard[0].offset[POINTS][i], i / 2 * 5 + i % 2);
    loader_close(l);
}

static void closes_at_any_moment(void **state)
{
    struct fixture *f = *state;
    struct loader_options o = training();
    struct task *t = task_of(f->d, drawn());
    struct loader *l;
    struct batch b;
    struct err err;

    o.workers = 3;
    for (int n = 0; n < 16; n++) {
        const struct stress forced = { (uint64_t)n, 0, 1 };

        o.stress = n < 8 ? NULL : &forced;
        assert_int_equal(loader_open(t, &o, &l, &err), 0);
        for (int k = 0; k < n % 8; k++)
            assert_int_equal(loader_next(l, &b, &err), 0);
        loader_close(l);
    }
    o.shards = 3;
    assert_int_equal(loader_open(t, &o, &l, &err), ERR_INPUT);
    loader_close(NULL);
    task_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_but_seed_and_step_matters),
        cmocka_unit_test(waves_cover_the_shards),
        cmocka_unit_test(validation_sees_each_image_once),
        cmocka_unit_test(lost_files_are_named_or_replaced),
        cmocka_unit_test(pictures_are_decoded_or_kept),
        cmocka_unit_test(a_picture_of_another_size),
        cmocka_unit_test(the_cache_keeps_to_its_limit),
        cmocka_unit_test(lost_pictures_leave_with_their_boxes),
        cmocka_unit_test(the_first_of_two_bad_pictures_is_told),
        cmocka_unit_test(rows_keep_to_their_room),
        cmocka_unit_test(closes_at_any_moment),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
