/* SPDX-License-Identifier: Apache-2.0 */ /* What is written from the table of keys: help, schema and manual page are up to date; DETD_GENERATE=1 in the environment rewrites the last two
 * instead. uses: proto */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/proto/job/job_file.h"

static char *written(int (*write)(FILE *))
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    assert_int_equal(write(f), 0);
    fclose(f);
    return text;
}

static char *read_all(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 18);

    if (f) {
        text[fread(text, 1, (1 << 18) - 1, f)] = '\0';
        fclose(f);
    }
    return text;
}

static void schema_is_current(void **state)
{
    char *now = written(jobspec_write_schema), *stored;
    json_t *json = json_loads(now, 0, NULL);

    (void)state;
    assert_non_null(json);
    json_decref(json);
    if (getenv("DETD_GENERATE"))
        write_file("schema/job.schema.json", now);
    stored = read_all("schema/job.schema.json");
    assert_string_equal(stored, now);
    free(now);
    free(stored);
}

/* Between its two marks the manual page holds the table. */
static void manual_is_current(void **state)
{
    static const char path[] = "docs/man/detd-job-file.5", from[] = ".\\\" begin keys\n", to[] = ".\\\" end keys\n";
    char *keys = written(jobspec_write_man), *page = read_all(path), *a = strstr(page, from), *b = strstr(page, to), *want = NULL;

    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    a += strlen(from);
    assert_true(asprintf(&want, "%.*s%s%s", (int)(a - page), page, keys, b) > 0);
    if (getenv("DETD_GENERATE"))
        write_file(path, want);
    else
        assert_string_equal(page, want);
    free(keys);
    free(page);
    free(want);
}

static int write_help_of_all(FILE *out)
{
    return jobspec_write_help(out, NULL);
}

static int write_help_of_rcnn(FILE *out)
{
    return jobspec_write_help(out, job_preset_find(&job_presets, "mask_rcnn_r50_fpn"));
}

static int write_help_of_boxes(FILE *out)
{
    return jobspec_write_help(out, job_preset_find(&job_presets, "faster_rcnn_r50_fpn"));
}

/* Only what such a model has, with its own defaults. */
static void help_of_a_family(void **state)
{
    char *text = written(write_help_of_rcnn);

    (void)state;
    assert_non_null(strstr(text, "model.roi_batch "));
    assert_non_null(strstr(text, "train.batch "));
    assert_non_null(strstr(text, "default 0.02 * train.batch / 16"));
    assert_non_null(strstr(text, "default false, true with model.init"));
    assert_null(strstr(text, "model.obj_gain "));
    assert_null(strstr(text, "\nmodel.size "));
    assert_null(strstr(text, "family"));
    assert_non_null(strstr(text, "\nmodel.mask_channels "));
    assert_non_null(strstr(text, "\nmodel.mask_pool "));
    free(text);
    text = written(write_help_of_boxes);
    assert_non_null(strstr(text, "\nmodel.roi_batch "));
    assert_null(strstr(text, "\nmodel.mask_"));
    free(text);
}

static void help_names_every_key(void **state)
{
    char *text = written(write_help_of_all);

    (void)state;
#define X(field, key, ...) assert_true((strstr(text, "\n" key " ") || strncmp(text, key " ", sizeof key) == 0) != job_word_is_errand(key));
    JOB_KEYS(X)
#undef X
    free(text);
}

/* The last word of the longest list is the last preset. */
static void no_list_is_cut(void **state)
{
    char *help = written(write_help_of_all), *man = written(jobspec_write_man);

    (void)state;
    assert_non_null(strstr(help, " featdepth_joint_r18 featdepth_joint_r50; optional\n"));
    assert_non_null(strstr(man, " featdepth_joint_r18 featdepth_joint_r50; optional.\n"));
    free(help);
    free(man);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schema_is_current), cmocka_unit_test(manual_is_current), cmocka_unit_test(help_names_every_key),
        cmocka_unit_test(help_of_a_family),  cmocka_unit_test(no_list_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
