/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/read/test_index.c
 * uses: proto worker/core worker/mask worker/data
 * The checked sample list: it is read back unchanged. Damage is noticed, and so are files that changed since the
 * check. */
#include <errno.h>
#include <fcntl.h>
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
#include "worker/data/read/check.h"
#include "worker/data/image/image.h"
#include "worker/data/set/problems.h"

struct fixture {
    char dir[TEMP_MAX], json[TEMP_MAX + 16], index[TEMP_MAX + 16], images[TEMP_MAX + 16], first[TEMP_MAX + 32];
    struct check_options opt;
};

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static int setup(void **state)
{
    static const uint8_t rgb[8 * 6 * 3] = { 1, 2, 3 };
    struct fixture *f = calloc(1, sizeof *f);
    struct err err;

    assert_non_null(mkdtemp(temp_path(f->dir, sizeof f->dir, "detd-index-XXXXXX")));
    snprintf(f->json, sizeof f->json, "%s/a.json", f->dir);
    snprintf(f->index, sizeof f->index, "%s/index.train", f->dir);
    snprintf(f->images, sizeof f->images, "%s/images", f->dir);
    snprintf(f->first, sizeof f->first, "%s/x.png", f->images);
    mkdir(f->images, 0700);
    assert_int_equal(image_write_png(f->first, rgb, 8, 6, &err), 0);
    write_text(f->json, "{\"images\": [{\"id\": 4, \"file_name\": \"x.png\", \"width\": 8, \"height\": 6}],"
                        " \"annotations\": [{\"id\": 1, \"image_id\": 4, \"category_id\": 3, \"bbox\": [1, 2, 3, 4.5], \"iscrowd\": 1},"
                        " {\"id\": 2, \"image_id\": 4, \"category_id\": 9, \"bbox\": [0, 0, 80, 6], \"area\": 7}],"
                        " \"categories\": [{\"id\": 9, \"name\": \"nine\"}, {\"id\": 3, \"name\": \"three\"}]}");
    f->opt = (struct check_options){ .annotations = f->json, .images = f->images, .on_bad = BAD_ERROR, .threads = 1 };
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    unlink(f->first);
    unlink(f->json);
    unlink(f->index);
    rmdir(f->images);
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

static struct dataset *checked(struct fixture *f)
{
    struct problems *p = calloc(1, sizeof *p);
    struct dataset *d = NULL;
    struct err err = { 0 };

    if (check_split(&f->opt, p, &d, &err) != 0)
        fail_msg("%s", err.msg);
    free(p);
    return d;
}

static void comes_back_as_it_was(void **state)
{
    struct fixture *f = *state;
    struct dataset *d = checked(f), *back;
    struct hash128 a, b;
    struct err err = { 0 };

    assert_int_equal(index_load(f->index, &f->opt, &back, &err), -ENOENT);
    assert_int_equal(index_write(f->index, d, &err), 0);
    if (index_load(f->index, &f->opt, &back, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(back->nimages == 1 && back->nclasses == 2 && back->offset[1] == 2 && back->max_boxes == 2 && back->clipped == 2);
    assert_string_equal(back->classes[0].name, "three");
    assert_string_equal(back->images[0].file, "x.png");
    assert_memory_equal(&back->images[0].hash, &d->images[0].hash, sizeof d->images[0].hash);
    for (int k = 0; k < 2; k++) {
        const struct dataset_box *x = &d->boxes[k], *y = &back->boxes[k];

        assert_true(x->x == y->x && x->y == y->y && x->w == y->w && x->h == y->h && x->area == y->area);
        assert_true(x->id == y->id && x->cls == y->cls && x->crowd == y->crowd);
        assert_memory_equal(x->told, y->told, sizeof x->told);
        assert_memory_not_equal(y->told, ((double[]){ y->x, y->y, y->w, y->h }), sizeof y->told); /* both were cut */
    }
    assert_true(back->boxes[0].crowd && back->boxes[1].w == 8 && back->boxes[1].area == 7);
    assert_int_equal(index_hash(d, &a, &err), 0);
    assert_int_equal(index_hash(back, &b, &err), 0);
    assert_memory_equal(&a, &b, sizeof a);
    back->boxes[1].h = 5;
    index_hash(back, &b, &err);
    assert_memory_not_equal(&a, &b, sizeof a);
    dataset_free(d);
    dataset_free(back);
}

/* The index of the fixture as an earlier version wrote it: without boxes as annotated, and with the earlier format
 * number. */
static void make_older(const char *path)
{
    enum { HASH = sizeof(struct hash128), BOX = 7 * 8, TOLD = 4 * 8 };
    unsigned char bytes[2048];
    FILE *file = fopen(path, "r");
    size_t n = fread(bytes, 1, sizeof bytes, file) - HASH, first = n - (size_t)2 * (BOX + TOLD);
    struct hash128 hash;

    fclose(file);
    assert_int_equal(bytes[7], '3');
    bytes[7] = '1';
    memmove(bytes + first + BOX, bytes + first + BOX + TOLD, BOX);
    n = first + (size_t)2 * BOX;
    hash = hash_bytes(bytes, n, 0);
    memcpy(bytes + n, &hash, sizeof hash);
    file = fopen(path, "w");
    assert_int_equal(fwrite(bytes, 1, n + HASH, file), n + HASH);
    fclose(file);
}

/* The job continues with the boxes that it has been scored by, and its data are still the same. */
static void of_an_earlier_version(void **state)
{
    struct fixture *f = *state;
    struct dataset *d = checked(f), *back;
    struct hash128 a, b;
    struct err err = { 0 };

    assert_int_equal(index_write(f->index, d, &err), 0);
    make_older(f->index);
    if (index_load(f->index, &f->opt, &back, &err) != 0)
        fail_msg("%s", err.msg);
    for (int k = 0; k < 2; k++) {
        const struct dataset_box *x = &d->boxes[k], *y = &back->boxes[k];

        assert_true(x->x == y->x && x->y == y->y && x->w == y->w && x->h == y->h && x->id == y->id);
        assert_true(y->told[0] == y->x && y->told[1] == y->y && y->told[2] == y->w && y->told[3] == y->h);
    }
    assert_int_equal(index_hash(d, &a, &err), 0);
    assert_int_equal(index_hash(back, &b, &err), 0);
    assert_memory_equal(&a, &b, sizeof a);
    dataset_free(d);
    dataset_free(back);
}

/* Masks are part of the index and of its hash if they are requested. Without masks both are the same as before masks
 * existed. */
static void masks_come_back_too(void **state)
{
    struct fixture *f = *state;
    struct dataset *d, *back;
    struct hash128 boxes, masks, again;
    struct err err = { 0 };
    struct mask m;
    char hex[33];

    write_text(f->json,
               "{\"images\": [{\"id\": 4, \"file_name\": \"x.png\", \"width\": 8, \"height\": 6}],"
               " \"annotations\": [{\"id\": 1, \"image_id\": 4, \"category_id\": 9, \"bbox\": [1, 2, 3, 4.5], \"iscrowd\": 1},"
               " {\"id\": 2, \"image_id\": 4, \"category_id\": 9, \"bbox\": [0, 0, 8, 6], \"segmentation\": [[0, 0, 8, 0, 8.5, 6],"
               " [1, 1, 2, 1, 2, 2, 1, 2]]}, {\"id\": 3, \"image_id\": 4, \"category_id\": 9, \"bbox\": [0, 0, 8, 6],"
               " \"segmentation\": {\"size\": [6, 8], \"counts\": [7, 1, 40]}}], \"categories\": [{\"id\": 9, \"name\": \"nine\"}]}");
    d = checked(f);
    assert_int_equal(index_hash(d, &boxes, &err), 0);
    d->source_hash = d->images[0].hash = (struct hash128){ { 1, 2 } };
    d->source_bytes = d->images[0].size_bytes = 99;
    assert_int_equal(index_hash(d, &again, &err), 0);
    hash_hex(again, hex);
    assert_string_equal(hex, "f2aa35eec05e979de2530d65d9ff5577");
    dataset_free(d);
    f->opt.masks = true;
    d = checked(f);
    assert_int_equal(index_hash(d, &masks, &err), 0);
    assert_memory_not_equal(&masks, &boxes, sizeof masks);
    assert_int_equal(index_write(f->index, d, &err), 0);
    dataset_free(d);
    if (index_load(f->index, &f->opt, &back, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(dataset_mask(back, 0).kind, MASK_NONE);
    m = dataset_mask(back, 1);
    assert_true(m.kind == MASK_POLYGONS && m.n == 2 && m.first[1] == 3 && m.first[2] == 7 && m.xy[2][0] == 8.5 && m.xy[6][1] == 2);
    m = dataset_mask(back, 2);
    assert_true(m.kind == MASK_RUNS && m.n == 3 && m.run[0] == 7 && m.run[1] == 1 && m.run[2] == 40);
    assert_int_equal(index_hash(back, &again, &err), 0);
    assert_memory_equal(&masks, &again, sizeof masks);
    back->masks->xy[4][1] = 1.5;
    assert_int_equal(index_hash(back, &again, &err), 0);
    assert_memory_not_equal(&masks, &again, sizeof masks);
    dataset_free(back);
    f->opt.masks = false;
    assert_int_equal(index_load(f->index, &f->opt, &back, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "holds masks that are not asked for"));
    d = checked(f);
    assert_int_equal(index_write(f->index, d, &err), 0);
    dataset_free(d);
    f->opt.masks = true;
    assert_int_equal(index_load(f->index, &f->opt, &back, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "lacks the masks"));
    f->opt.masks = false;
}

/* Images of short names and nothing on them take the fewest bytes. */
static void no_box_at_all(void **state)
{
    struct fixture *f = *state;
    struct dataset *d, *back;
    struct err err = { 0 };

    write_text(f->json, "{\"images\": [{\"id\": 4, \"file_name\": \"x.png\", \"width\": 8, \"height\": 6}], \"annotations\": [],"
                        " \"categories\": [{\"id\": 9, \"name\": \"\"}]}");
    d = checked(f);
    assert_int_equal(index_write(f->index, d, &err), 0);
    if (index_load(f->index, &f->opt, &back, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(back->nimages == 1 && back->offset[1] == 0 && back->max_boxes == 0);
    dataset_free(d);
    dataset_free(back);
}

static void damage_is_noticed(void **state)
{
    struct fixture *f = *state;
    struct dataset *d = checked(f), *back;
    unsigned char bytes[2048];
    struct err err = { 0 };
    FILE *file;
    size_t n;

    assert_int_equal(index_write(f->index, d, &err), 0);
    dataset_free(d);
    file = fopen(f->index, "r");
    n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (size_t i = 0; i < n; i += 7) {
        file = fopen(f->index, "w");
        bytes[i] ^= 16;
        fwrite(bytes, 1, i % 2 ? n : i, file);
        bytes[i] ^= 16;
        fclose(file);
        assert_int_equal(index_load(f->index, &f->opt, &back, &err), ERR_CORRUPT);
        assert_non_null(strstr(err.msg, f->index));
    }
}

static void touch(const char *path, long seconds)
{
    struct timespec t[2] = { { seconds, 0 }, { seconds, 0 } };

    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void changed_files_are_data_errors(void **state)
{
    static const uint8_t other[8 * 6 * 3] = { 9, 2, 3 };
    struct fixture *f = *state;
    struct dataset *d = checked(f), *back;
    struct check_options elsewhere = f->opt;
    struct err err = { 0 };
    struct stat st;

    assert_int_equal(index_write(f->index, d, &err), 0);
    dataset_free(d);
    touch(f->first, 1000); /* a copy with other times is still the same data */
    touch(f->json, 1000);
    assert_int_equal(index_load(f->index, &f->opt, &back, &err), 0);
    dataset_free(back);
    stat(f->first, &st);
    assert_int_equal(image_write_png(f->first, other, 8, 6, &err), 0);
    assert_int_equal(truncate(f->first, st.st_size), 0);
    assert_int_equal(index_load(f->index, &f->opt, &back, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "x.png"));
    write_text(f->json, "{}");
    assert_int_equal(index_load(f->index, &f->opt, &back, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "a.json"));
    elsewhere.images = "/elsewhere";
    assert_int_equal(index_load(f->index, &elsewhere, &back, &err), ERR_DATA);
    unlink(f->json);
    assert_int_equal(index_load(f->index, &f->opt, &back, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "a.json"));
}

static void bytes_more_or_less_are_seen_under_the_same_time(void **state)
{
    struct fixture *f = *state;
    const char *const files[2] = { f->json, f->first };
    struct dataset *d = checked(f), *back;
    struct err err = { 0 };

    assert_int_equal(index_write(f->index, d, &err), 0);
    dataset_free(d);
    for (int i = 0; i < 2; i++) {
        struct timespec t[2];
        struct stat st;

        assert_int_equal(stat(files[i], &st), 0);
        t[0] = st.st_atim;
        t[1] = st.st_mtim;
        for (int more = -1; more < 2; more++) {
            assert_int_equal(truncate(files[i], st.st_size + more), 0);
            assert_int_equal(utimensat(AT_FDCWD, files[i], t, 0), 0);
            if (more == 0)
                continue;
            assert_int_equal(index_load(f->index, &f->opt, &back, &err), ERR_DATA);
            assert_non_null(strstr(err.msg, files[i]));
        }
        assert_int_equal(truncate(files[i], st.st_size), 0);
        assert_int_equal(utimensat(AT_FDCWD, files[i], t, 0), 0);
    }
}

static void an_index_of_other_files_is_told(void **state)
{
    struct fixture *f = *state;
    struct check_options other = f->opt;
    struct dataset *d = checked(f), *back;
    struct err err = { 0 };

    assert_int_equal(index_write(f->index, d, &err), 0);
    dataset_free(d);
    other.annotations = "/b.json";
    assert_int_equal(index_load(f->index, &other, &back, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "the job has '/b.json'"));
}

/* Ranks compare the hash, and their hosts may have copied the files at different times to different places. */
static void the_hash_is_of_content(void **state)
{
    struct fixture *f = *state;
    struct dataset *d = checked(f), *again;
    struct hash128 a, b;
    struct err err;

    touch(f->first, 1000);
    touch(f->json, 1000);
    again = checked(f);
    assert_true(d->images[0].mtime_ns != again->images[0].mtime_ns && d->source_mtime_ns != again->source_mtime_ns);
    free(again->folder);
    again->folder = strdup("/elsewhere");
    assert_int_equal(index_hash(d, &a, &err), 0);
    assert_int_equal(index_hash(again, &b, &err), 0);
    assert_memory_equal(&a, &b, sizeof a);
    again->images[0].hash.lane[1]++;
    assert_int_equal(index_hash(again, &b, &err), 0);
    assert_memory_not_equal(&a, &b, sizeof a);
    dataset_free(d);
    dataset_free(again);
}

static void a_picture_has_the_stated_size(void **state)
{
    static const int sides[3][2] = { { 8, 7 }, { 9, 6 }, { 6, 8 } };
    struct fixture *f = *state;
    struct problems *p = calloc(1, sizeof *p);
    char text[256], want[64];
    struct dataset *d;
    struct err err;

    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text,
                 "{\"images\": [{\"id\": 4, \"file_name\": \"x.png\", \"width\": %d, \"height\": %d}], \"annotations\": [],"
                 " \"categories\": [{\"id\": 9, \"name\": \"\"}]}",
                 sides[i][0], sides[i][1]);
        write_text(f->json, text);
        snprintf(want, sizeof want, "is 8 x 6 pixels, but the annotations say %d x %d", sides[i][0], sides[i][1]);
        memset(p, 0, sizeof *p);
        assert_int_equal(check_split(&f->opt, p, &d, &err), ERR_DATA);
        assert_non_null(strstr(err.msg, want));
        assert_true((strstr(err.msg, "EXIF") != NULL) == (sides[i][0] == 6));
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(comes_back_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(of_an_earlier_version, setup, teardown),
        cmocka_unit_test_setup_teardown(masks_come_back_too, setup, teardown),
        cmocka_unit_test_setup_teardown(no_box_at_all, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_noticed, setup, teardown),
        cmocka_unit_test_setup_teardown(changed_files_are_data_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_more_or_less_are_seen_under_the_same_time, setup, teardown),
        cmocka_unit_test_setup_teardown(an_index_of_other_files_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(the_hash_is_of_content, setup, teardown),
        cmocka_unit_test_setup_teardown(a_picture_has_the_stated_size, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
