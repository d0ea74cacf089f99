/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_families.c - uses: proto worker/core cpu cuda
 * Every device that has a family of operations has all of its operations, and a test in this folder calls each of
 * them. */
#include "tests/device/devices.h"

#include <glob.h>

#include "tests/stand/harness.h"

struct row {
    const char *family, *name;
};

#define ROW(family, name, params, args) { #family, #name },
#define ROWS(family, LIST)              LIST(ROW)
static const struct row of_all[] = { FAMILIES_OF_ALL(ROWS) }, of_some[] = { FAMILIES_OF_CUDA(ROWS) FAMILIES_OF_CPU(ROWS) };
#undef ROWS
#undef ROW
#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* A device that has the family must have all of it. */
static void check_tables(struct device *dev)
{
    const char *who = dev->ops->name;

#define ROW(family, name, params, args) \
    if (!dev->on->family->name)         \
        fail_msg("%s lacks %s->%s", who, #family, #name);
#define FAMILY(family, LIST) \
    if (dev->on->family) {   \
        LIST(ROW)            \
    }
    FAMILIES(FAMILY)
#undef FAMILY
#define FAMILY(family, LIST) assert_non_null(dev->on->family);
    FAMILIES_OF_ALL(FAMILY)
#undef FAMILY
#undef ROW
}

static void tables(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++)
        check_tables(devices.dev[d]);
}

/* The text of all files here, to be freed. */
static char *sources(void)
{
    char *text = NULL;
    size_t n = 0;
    glob_t found;

    assert_int_equal(glob("tests/device/*.[ch]", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *f = fopen(found.gl_pathv[i], "r");
        size_t got;

        assert_non_null(f);
        do {
            char *more = realloc(text, n + 65536 + 1);

            assert_non_null(more);
            text = more;
            got = fread(text + n, 1, 65536, f);
            n += got;
        } while (got > 0);
        text[n] = '\0';
        fclose(f);
    }
    globfree(&found);
    return text;
}

static void check_called(const struct row *rows, size_t n, const char *text)
{
    char call[80];

    for (size_t i = 0; i < n; i++) {
        snprintf(call, sizeof call, "on->%s->%s(", rows[i].family, rows[i].name);
        if (!strstr(text, call))
            fail_msg("no test of this folder calls %s", call);
    }
}

static void called(void **state)
{
    char *text = sources();

    (void)state;
    check_called(of_all, COUNT(of_all), text);
    check_called(of_some, COUNT(of_some), text);
    free(text);
}

/* If bits differ, only a NaN of each kind counts as equal, and only beside a real GPU. */
static void a_nan_of_each(void **state)
{
    static const struct {
        uint32_t cpu[4], gpu[4];
        size_t at, real_at;
    } t[] = {
        { { 1, 0xFFC00000, 3, 4 }, { 1, 0x7FFFFFFF, 3, 4 }, 4, 16 },          /* fp32 */
        { { 0, 0xFFF80000, 3, 4 }, { 0xFFFFFFFF, 0x7FFFFFFF, 3, 4 }, 0, 16 }, /* fp64 */
        { { 0, 0x7FF80000, 3, 4 }, { 0, 0xFFF80000, 3, 4 }, 6 + 1, 16 },      /* the same, of another sign */
        { { 3, 0xFFFFFFFF, 3, 4 }, { 9, 0xFFFFFFFF, 3, 4 }, 0, 0 },           /* integers */
        { { 3, 0xFFFFFFFF, 3, 4 }, { 3, 0xFFFFFFFE, 3, 4 }, 4, 4 },
        { { 3, 0x7FC00000, 3, 4 }, { 3, 0x40000000, 3, 4 }, 6, 6 }, /* a number in the place of a NaN */
        { { 3, 0x40000000, 3, 4 }, { 3, 0x7FFFFFFF, 3, 4 }, 4, 4 }, /* and the other way round */
        { { 1, 0, 0x7FF80000, 4 }, { 1, 0, 0x7FF80000, 5 }, 12, 12 },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        assert_int_equal(difference(t[i].cpu, t[i].gpu, sizeof t[i].cpu, false), t[i].at);
        assert_int_equal(difference(t[i].cpu, t[i].gpu, sizeof t[i].cpu, true), t[i].real_at);
    }
    assert_int_equal(difference("abcdefg", "abcdefh", 7, true), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(tables), cmocka_unit_test(called), cmocka_unit_test(a_nan_of_each) };

    return cmocka_run_group_tests_name("families", tests, open_devices, close_devices);
}
