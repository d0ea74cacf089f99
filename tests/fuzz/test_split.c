/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_split.c - uses: proto worker/core worker/mask worker/data
 * Lists of the frames of a split. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/read/frames/split_list.h"

const char fuzz_name[] = "split";
const int fuzz_places = 40;

/* The same bytes as a list of several splits. */
static void read_json(const uint8_t *bytes, size_t size)
{
    static struct split_line line;
    struct split_list list;
    struct err err = { 0 };
    char path[128];
    int64_t lines = 0;

    snprintf(path, sizeof path, "%s.json", fuzz_path());
    fuzz_write(path, bytes, size);
    if (split_list_open(&list, path, "val", &err) < 0) {
        assert_int_equal(err.code, ERR_DATA);
    } else {
        while (split_list_next(&list, &line, &err) != 0)
            lines++;
        assert_true(list.size <= size && lines <= (int64_t)size);
    }
    split_list_close(&list);
    unlink(path);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    static struct split_line line;
    struct split_list list;
    struct err err = { 0 };
    int64_t last = 0;
    int rc;

    read_json(bytes, size);
    fuzz_write(fuzz_path(), bytes, size);
    assert_int_equal(split_list_open(&list, fuzz_path(), "train", &err), 0);
    while ((rc = split_list_next(&list, &line, &err)) != 0) {
        assert_true(rc == 1 || (rc == ERR_DATA && strstr(err.msg, ", line ")));
        assert_true(list.line > last);
        last = list.line;
        if (rc < 0)
            continue;
        assert_in_range(line.n, 1, SPLIT_MAX_WORDS);
        for (int i = 0; i < SPLIT_MAX_WORDS; i++) {
            int64_t n = split_number(line.word[i], 1000);

            assert_true(strlen(line.word[i]) <= SPLIT_MAX_WORD && (line.word[i][0] != '\0') == (i < line.n));
            assert_true(strpbrk(line.word[i], " \t\r\n") == NULL);
            assert_true(n >= -1 && n <= 1000);
        }
    }
    assert_true(last <= (int64_t)size + 1);
    split_list_close(&list);
    unlink(fuzz_path());
}
