/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/job/test_label.c - uses: proto daemon
 * Adding and removing of tags, and text that is no valid tag. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/job/label.h"
#include "proto/err.h"

static void becomes(const char *before, const char *changes, const char *after)
{
    char tags[JOB_TAGS_BYTES];
    struct err err = { 0 };

    snprintf(tags, sizeof tags, "%s", before);
    if (label_change(tags, changes, &err) < 0)
        fail_msg("%s: %s", changes, err.msg);
    if (strcmp(tags, after) != 0)
        fail_msg("'%s' and '%s' make '%s', not '%s'", before, changes, tags, after);
}

static void tags_are_sorted_and_stand_once(void **state)
{
    (void)state;
    becomes("", "b", "b");
    becomes("", "+b a  +c a", "a,b,c");
    becomes("a,c", "b", "a,b,c");
    becomes("a,c", "ab abc", "a,ab,abc,c");
    becomes("ab", "a", "a,ab");
    becomes("a,b,c", "-a", "b,c");
    becomes("a,b,c", "-b", "a,c");
    becomes("a,b,c", "-c", "a,b");
    becomes("a,b,c", "-b -a -c", "");
    becomes("a", "-b", "a"); /* it is not there, as was wished */
    becomes("ab,b", "-a", "ab,b");
    becomes("a", " -a +a ", "a");
    becomes("x.y_z-1", "A0", "A0,x.y_z-1");
}

static void refused(const char *before, const char *changes)
{
    char tags[JOB_TAGS_BYTES];
    struct err err = { 0 };

    snprintf(tags, sizeof tags, "%s", before);
    assert_int_equal(label_change(tags, changes, &err), ERR_INPUT);
    assert_string_equal(err.field, "tags");
    assert_string_equal(tags, before);
}

static void what_is_no_tag_changes_nothing(void **state)
{
    char many[JOB_TAGS_BYTES] = "", longest[JOB_TAG_MAX + 2], more[40];
    struct err err;

    (void)state;
    refused("a", "b c,d");
    refused("a", "+");
    refused("a", "-");
    refused("a", "--b");
    refused("a", "b \xc3\xa4");
    refused("a", "b\tc");
    memset(longest, 'x', sizeof longest - 1);
    longest[JOB_TAG_MAX + 1] = '\0';
    refused("a", longest);
    for (int i = 0; i < JOB_TAGS; i++) { /* all of the longest */
        snprintf(more, sizeof more, "%0*d", JOB_TAG_MAX, i);
        assert_int_equal(label_change(many, more, &err), 0);
    }
    assert_int_equal(strlen(many), JOB_TAGS_BYTES - 1);
    refused(many, "b");
    becomes(many, "", many);
}

static void what_is_found(void **state)
{
    json_t *all = label_json("ab,b");

    (void)state;
    assert_true(label_has("ab,b", "b") && label_has("ab,b", "ab"));
    assert_false(label_has("ab,b", "a") || label_has("", "a") || label_has("ab", "") || label_has("ab,b", "ab,b"));
    assert_int_equal(json_array_size(all), 2);
    assert_string_equal(json_string_value(json_array_get(all, 1)), "b");
    json_decref(all);
}

static void notes(void **state)
{
    char note[JOB_NOTE_MAX + 2];
    struct err err;

    (void)state;
    memset(note, 'x', sizeof note);
    note[JOB_NOTE_MAX + 1] = '\0';
    assert_int_equal(label_check_note(note, &err), ERR_INPUT);
    note[JOB_NOTE_MAX] = '\0';
    assert_int_equal(label_check_note(note, &err), 0);
    assert_int_equal(label_check_note("two\nlines", &err), ERR_INPUT);
    assert_int_equal(label_check_note("\033[2J", &err), ERR_INPUT);
    assert_int_equal(label_check_note("a\u202eb", &err), ERR_INPUT);
    assert_int_equal(label_check_note("\xc2\x9b"
                                      "2J",
                                      &err),
                     ERR_INPUT);
    assert_int_equal(label_check_note("5 \xc2\xb5m", &err), 0);
    assert_int_equal(label_check_note("", &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_are_sorted_and_stand_once),
        cmocka_unit_test(what_is_no_tag_changes_nothing),
        cmocka_unit_test(what_is_found),
        cmocka_unit_test(notes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
