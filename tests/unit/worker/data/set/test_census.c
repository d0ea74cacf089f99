/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/set/test_census.c
 * uses: proto worker/core worker/mask worker/data
 * The notes about a split, each given once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "worker/data/set/census.h"
#include "worker/data/set/dataset.h"

enum { MOST = 500 };

static void objects_by_class(void **state)
{
    char red[] = "red", escape[] = "a\n\302\2332b", never[] = "never", text[CENSUS_TEXT];
    struct dataset_class classes[] = { { 3, red }, { 5, escape }, { 9, never } };
    struct dataset_box boxes[] = { { .cls = 0 }, { .cls = 1 }, { .cls = 1, .crowd = true }, { .cls = 0 }, { .cls = 0 } };
    int64_t offset[] = { 0, 3, 3, 5 };
    struct dataset d = { .nclasses = 3, .nimages = 3, .classes = classes, .boxes = boxes, .offset = offset };

    (void)state;
    assert_string_equal(census_text(&d, 0, text, sizeof text), "objects by class: red 3, a??2b 1, never 0");
    assert_string_equal(census_text(&d, 1, text, sizeof text),
                        "1 image without an object to train on is left out; objects by class: red 3, a??2b 1, never 0");
    assert_string_equal(census_text(&d, 12, text, sizeof text),
                        "12 images without an object to train on are left out; objects by class: red 3, a??2b 1, never 0");
}

/* The text is whole for any number of classes. */
static void many_classes(void **state)
{
    static char name[MOST][64];
    static struct dataset_class classes[MOST];
    int64_t offset[] = { 0 };
    struct dataset d = { .nclasses = MOST, .classes = classes, .offset = offset };
    char text[CENSUS_TEXT], last[64];
    int listed = 0;

    (void)state;
    for (int i = 0; i < MOST; i++) {
        memset(name[i], 'x', sizeof name[i] - 1);
        classes[i] = (struct dataset_class){ i, name[i] };
    }
    census_text(&d, 0, text, sizeof text);
    for (const char *p = text; (p = strstr(p, " 0")); p++)
        listed++;
    snprintf(last, sizeof last, "x 0, and %d more classes", MOST - listed);
    assert_true(listed > 40 && strlen(text) > strlen(last));
    assert_string_equal(text + strlen(text) - strlen(last), last);
}

/* A crowd is no object, and an image at the limit is not over it. */
static void more_than_the_limit(void **state)
{
    struct census_limit limit = { "model.proposals", 2, "are not learned", "learn all" };
    char a[] = "a.png", b[] = "b.png", c[] = "c.png", text[CENSUS_TEXT];
    struct dataset_image images[] = { { .file = a }, { .file = b }, { .file = c } };
    struct dataset_box boxes[10] = { [2] = { .crowd = true } };
    int64_t offset[] = { 0, 3, 6, 10 };
    struct dataset d = { .nimages = 3, .images = images, .boxes = boxes, .offset = offset };

    (void)state;
    assert_true(census_crowded(&d, &limit, text, sizeof text));
    assert_string_equal(text,
                        "2 of 3 images have more objects than model.proposals, 2, which then are not learned; the most are 4, in 'c.png': "
                        "model.proposals=4 would learn all");
    limit.objects = 4;
    assert_false(census_crowded(&d, &limit, text, sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(objects_by_class), cmocka_unit_test(many_classes),
                                        cmocka_unit_test(more_than_the_limit) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
