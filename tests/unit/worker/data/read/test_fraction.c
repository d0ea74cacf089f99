/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/read/test_fraction.c
 * uses: proto worker/core worker/mask worker/data
 * A validation split that is part of the training split: the content of a picture decides its side. */
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

enum { PICTURES = 120, SIDE = 8 };

struct set {
    char dir[TEMP_MAX], json[TEMP_MAX + 16];
    struct check_options opt;
    struct problems problems;
    struct err err;
};

/* Picture k has contents made from its number; `first` names the files, and changes their order. Two more files are
 * copies of picture 0 under other names. */
static void make(struct set *s, int first)
{
    char path[TEMP_MAX + 32];
    FILE *f;

    memset(s, 0, sizeof *s);
    temp_path(s->dir, sizeof s->dir, "fraction-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->json, sizeof s->json, "%s/a.json", s->dir);
    f = fopen(s->json, "w");
    assert_non_null(f);
    fputs("{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"annotations\":[", f);
    for (int k = 0; k < PICTURES + 2; k++) /* every box reaches over its picture */
        fprintf(f, "%s{\"id\":%d,\"image_id\":%d,\"category_id\":1,\"bbox\":[-1,0,4,4]}", k ? "," : "", k + 1, first + k);
    fputs("],\"images\":[", f);
    for (int k = 0; k < PICTURES + 2; k++) {
        int content = k < PICTURES ? (first ? PICTURES - 1 - k : k) : 0;
        uint8_t rgb[SIDE * SIDE * 3];

        memset(rgb, content, sizeof rgb);
        snprintf(path, sizeof path, "%s/%d.png", s->dir, first + k);
        assert_int_equal(image_write_png(path, rgb, SIDE, SIDE, &s->err), 0);
        fprintf(f, "%s{\"id\":%d,\"file_name\":\"%d.png\",\"width\":%d,\"height\":%d}", k ? "," : "", first + k, first + k, SIDE, SIDE);
    }
    fputs("]}", f);
    fclose(f);
    s->opt = (struct check_options){ .annotations = s->json, .images = s->dir, .threads = 2 };
}

static void end(struct set *s)
{
    char command[TEMP_MAX + 16];

    snprintf(command, sizeof command, "rm -rf '%s'", s->dir);
    assert_int_equal(system(command), 0);
}

/* The contents that are there, and the number of images. */
static int look(struct set *s, double fraction, bool part, uint8_t ret[256])
{
    struct dataset *d;
    char path[DATASET_MAX_PATH];
    struct decoder *dec = decoder_new();
    int n;

    memset(ret, 0, 256);
    memset(&s->problems, 0, sizeof s->problems);
    s->opt.fraction = fraction;
    s->opt.of_fraction = part;
    if (check_split(&s->opt, &s->problems, &d, &s->err) != 0)
        fail_msg("%s", s->err.msg);
    for (int i = 0; i < d->nimages; i++) {
        struct image img;

        assert_int_equal(image_read(dec, dataset_path(d, i, path), &img, &s->err), 0);
        ret[img.rgb[0]]++;
        assert_int_equal(d->offset[i + 1] - d->offset[i], 1);
    }
    assert_int_equal(d->clipped, d->nimages);
    n = d->nimages;
    dataset_free(d);
    decoder_free(dec);
    return n;
}

static void parts_are_the_whole(void **state)
{
    uint8_t train[256], val[256], more[256];
    struct set s;
    int n;

    (void)state;
    make(&s, 0);
    n = look(&s, 0.25, true, val);
    assert_int_equal(n + look(&s, 0.25, false, train), PICTURES + 2);
    assert_in_range(n, PICTURES / 8, PICTURES / 2); /* 30 are expected; content decides, so this never changes */
    for (int k = 0; k < PICTURES; k++)
        assert_int_equal(train[k] + val[k], k == 0 ? 3 : 1);
    assert_true(train[0] == 0 || val[0] == 0); /* copies are never on both sides */
    look(&s, 0.5, true, more);
    for (int k = 0; k < PICTURES; k++)
        assert_true(more[k] >= val[k]); /* a larger part has all of a smaller one */
    assert_int_equal(look(&s, 0, false, train), PICTURES + 2);
    end(&s);
}

static void names_and_order_are_nothing(void **state)
{
    uint8_t one[256], other[256];
    struct set s;

    (void)state;
    make(&s, 0);
    look(&s, 0.3, true, one);
    end(&s);
    make(&s, 1000);
    look(&s, 0.3, true, other);
    end(&s);
    assert_memory_equal(one, other, sizeof one);
}

/* Problems are reported once, with the training part. */
static void problems_are_told_once(void **state)
{
    char path[TEMP_MAX + 32];
    struct dataset *d;
    int64_t count = 0;
    struct set s;

    (void)state;
    make(&s, 0);
    s.opt.on_bad = BAD_SKIP;
    s.opt.fraction = 0.5;
    snprintf(path, sizeof path, "%s/3.png", s.dir);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/4.png", s.dir);
    assert_int_equal(truncate(path, 50), 0);
    for (int part = 0; part < 2; part++) {
        s.opt.of_fraction = part;
        memset(&s.problems, 0, sizeof s.problems);
        assert_int_equal(check_split(&s.opt, &s.problems, &d, &s.err), 0);
        dataset_free(d);
        count += s.problems.count;
    }
    assert_int_equal(count, 2);
    end(&s);
}

/* A single picture cannot be on both sides. */
static void a_part_without_pictures(void **state)
{
    struct dataset *d;
    struct set s;
    int failed = 0;

    (void)state;
    make(&s, 0);
    s.opt.fraction = 1e-6;
    for (int part = 0; part < 2; part++) {
        s.opt.of_fraction = part;
        memset(&s.problems, 0, sizeof s.problems);
        if (check_split(&s.opt, &s.problems, &d, &s.err) == 0) {
            dataset_free(d);
            continue;
        }
        failed++;
        assert_int_equal(s.err.code, ERR_DATA);
        assert_non_null(strstr(s.err.msg, "no image is in the validation part of data.val.fraction, 1e-06"));
    }
    assert_int_equal(failed, 1);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_the_whole),
        cmocka_unit_test(names_and_order_are_nothing),
        cmocka_unit_test(problems_are_told_once),
        cmocka_unit_test(a_part_without_pictures),
    };

    return cmocka_run_group_tests_name("fraction", tests, NULL, NULL);
}
