/* tests/unit/test_fuzz_data.c - uses: proto worker/core worker/mask worker/data worker/data/sample
 * Seeds of tests/fuzz for the parsers of worker/data, as they are and with bytes changed, cut and doubled in a fixed pseudo-random way: an answer or
 * an error that names the file, and nothing for the sanitizers to see. DETD_FUZZ_ROUNDS (default 60) changes of each seed. */
#include <dirent.h>
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
#include "tests/harness.h"
#include "worker/data/check.h"
#include "worker/data/coco.h"
#include "worker/data/image.h"
#include "worker/data/problems.h"
#include "worker/data/whole_file.h"
#include "worker/mask/rle.h"

enum { SEED_MAX = 1 << 16 };

typedef void parse_fn(const char *name, const uint8_t *bytes, size_t size);

static uint64_t random_state = 88172645463325252;

static size_t below(size_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)(random_state % n);
}

static void write_file(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

static const char *temporary(void)
{
    static char path[TEMP_MAX];

    return temp_path(path, sizeof path, "detd-fuzz");
}

static void parse_image(const char *name, const uint8_t *bytes, size_t size)
{
    struct decoder *dec = decoder_new();
    struct image img;
    struct err err = { 0 };
    unsigned sum = 0;

    if (image_decode(dec, name, bytes, size, &img, &err) < 0)
        assert_non_null(strstr(err.msg, name));
    else
        for (size_t i = 0; i < (size_t)img.w * (size_t)img.h * 3; i++)
            sum += img.rgb[i]; /* every pixel is there to be read */
    (void)sum;
    decoder_free(dec);
}

static void check_dataset(const struct dataset *d)
{
    for (int i = 0; i < d->nimages; i++)
        for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++) {
            const struct dataset_box *b = &d->boxes[k];

            assert_in_range(b->cls, 0, d->nclasses - 1);
            assert_true(b->w > 0 && b->h > 0 && b->x >= 0 && b->y >= 0);
            assert_true(b->x + b->w <= d->images[i].w * (1 + 1e-12) && b->y + b->h <= d->images[i].h * (1 + 1e-12));
        }
}

static void check_masks(const struct dataset *d)
{
    double sum = 0;

    for (int i = 0; i < d->nimages; i++)
        for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++) {
            struct mask m = dataset_mask(d, k);
            int64_t pixels = 0;

            assert_true(d->boxes[k].crowd || m.kind != MASK_NONE);
            for (int64_t p = m.kind == MASK_POLYGONS ? m.first[0] : 0; m.kind == MASK_POLYGONS && p < m.first[m.n]; p++)
                sum += m.xy[p][0] + m.xy[p][1];
            for (int r = 0; m.kind == MASK_RUNS && r < m.n; r++)
                pixels += m.run[r];
            assert_true(m.kind != MASK_RUNS || pixels == (int64_t)d->images[i].w * d->images[i].h);
        }
    assert_true(sum == sum);
}

static void parse_coco(const char *name, const uint8_t *bytes, size_t size)
{
    struct problems *p = calloc(1, sizeof *p);
    struct dataset *d;
    struct err err = { 0 };

    (void)name;
    write_file(temporary(), bytes, size);
    for (enum bad_policy policy = BAD_ERROR; policy <= BAD_SKIP; policy++) {
        if (coco_read(temporary(), "tests/fuzz/coco", policy, p, &d, &err) == 0) {
            check_dataset(d);
            dataset_free(d);
        } else {
            assert_non_null(strstr(err.msg, temporary()));
        }
        if (coco_read_masks(temporary(), "tests/fuzz/coco", policy, p, &d, &err) == 0) {
            check_dataset(d);
            check_masks(d);
            dataset_free(d);
        }
    }
    unlink(temporary());
    free(p);
}

/* The hash at the end is made to fit, or nothing behind it would ever be reached. */
static void parse_index(const char *name, const uint8_t *bytes, size_t size)
{
    struct check_options opt = { "a.json", "images", BAD_ERROR, 1, false };
    uint8_t *copy = malloc(size + 1);
    struct dataset *d = NULL;
    struct hash128 hash;
    struct err err = { 0 };

    (void)name;
    memcpy(copy, bytes, size);
    if (size >= sizeof hash) {
        hash = hash_bytes(copy, size - sizeof hash, 0);
        memcpy(copy + size - sizeof hash, &hash, sizeof hash);
    }
    write_file(temporary(), copy, size);
    assert_true(index_load(temporary(), &opt, &d, &err) < 0); /* its pictures are not here */
    opt.masks = true;
    assert_true(index_load(temporary(), &opt, &d, &err) < 0);
    unlink(temporary());
    free(copy);
}

/* A mask that was read goes there and back again by every way. */
static void check_mask(const struct rle *m)
{
    char *text = malloc(m->n * RLE_TEXT_MOST + 1);
    struct rle back = { 0 };
    uint8_t *bits;
    int box[4];
    size_t stride;
    struct err err;

    assert_int_equal(rle_from_text(&back, m->h, m->w, text, rle_to_text(m, text), &err), 0);
    assert_int_equal(back.n, m->n);
    assert_memory_equal(back.run, m->run, m->n * sizeof *m->run);
    rle_bounds(m, box);
    assert_true(box[0] >= 0 && box[1] >= 0 && box[0] + box[2] <= m->w && box[1] + box[3] <= m->h);
    stride = (size_t)(box[2] + 7) / 8;
    bits = malloc(stride * (size_t)box[3] + 1);
    rle_to_crop(m, box[0], box[1], box[2], box[3], bits);
    assert_int_equal(rle_from_crop(&back, m->h, m->w, &(struct rle_crop){ box[0], box[1], box[2], box[3], bits }, &err), 0);
    assert_int_equal(rle_area(&back), rle_area(m));
    assert_int_equal(rle_common(&back, m), rle_area(m));
    rle_free(&back);
    free(bits);
    free(text);
}

/* "HEIGHT WIDTH", a line, and the run string behind it. */
static void parse_rle(const char *name, const uint8_t *bytes, size_t size)
{
    const uint8_t *line = memchr(bytes, '\n', size);
    size_t head = line ? (size_t)(line - bytes) + 1 : 0;
    long long h = 480, w = 640;
    char first[64] = "";
    struct rle m = { 0 };
    struct err err = { 0 };

    (void)name;
    memcpy(first, bytes, head < sizeof first ? head : sizeof first - 1);
    sscanf(first, "%lld %lld", &h, &w);
    if (rle_from_text(&m, h, w, (const char *)bytes + head, size - head, &err) == 0)
        check_mask(&m);
    else
        assert_true(err.code == ERR_DATA && err.msg[0]);
    rle_free(&m);
}

static size_t change(uint8_t *bytes, size_t size)
{
    for (size_t n = 1 + below(4); n > 0 && size > 0; n--) {
        size_t at = below(size), len = below(size - at < 16 ? size - at + 1 : 17);

        switch (below(5)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            bytes[at] = (uint8_t)below(256);
            break;
        case 2:
            size = at;
            break;
        case 3: /* cut some out */
            memmove(bytes + at, bytes + at + len, size - at - len);
            size -= len;
            break;
        default: /* say some twice */
            if (size + len > SEED_MAX)
                break;
            memmove(bytes + at + len, bytes + at, size - at);
            size += len;
        }
    }
    return size;
}

static void replay(const char *folder, parse_fn *parse)
{
    const char *wanted = getenv("DETD_FUZZ_ROUNDS");
    int rounds = wanted ? atoi(wanted) : 60;
    static uint8_t bytes[SEED_MAX];
    struct whole_file f = { 0 };
    struct dirent **list;
    char path[512];
    int n = scandir(folder, &list, NULL, alphasort), seeds = 0;
    struct err err;

    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && whole_file_read(&f, path, SEED_MAX, &err) == 0) {
            seeds++;
            parse(path, f.bytes, f.size);
            for (int r = 0; r < rounds; r++) {
                memcpy(bytes, f.bytes, f.size);
                parse(path, bytes, change(bytes, f.size));
            }
        }
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    free(f.bytes);
    if (seeds == 0)
        fail_msg("no seeds in %s: run this from the root of the repository", folder);
}

static void images(void **state)
{
    (void)state;
    replay("tests/fuzz/image", parse_image);
}

static void annotations(void **state)
{
    (void)state;
    replay("tests/fuzz/coco", parse_coco);
}

static void indexes(void **state)
{
    (void)state;
    replay("tests/fuzz/index", parse_index);
}

static void run_strings(void **state)
{
    (void)state;
    replay("tests/fuzz/rle", parse_rle);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(images), cmocka_unit_test(annotations), cmocka_unit_test(indexes),
                                        cmocka_unit_test(run_strings) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
