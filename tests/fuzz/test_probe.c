/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_probe.c - uses: proto daemon
 * A line of the process that asks the GPU driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/gpu/gpu.h"
#include "proto/err.h"
#include "tests/fuzz/fuzz.h"

#define LETTERS "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-"

const char fuzz_name[] = "probe";
const int fuzz_places = 120;

void fuzz_one(const uint8_t *bytes, size_t size)
{
    char *line = malloc(size + 1);
    struct gpu_seen seen, was;
    struct err err = { 0 };

    memcpy(line, bytes, size);
    line[size] = '\0';
    memset(&seen, 0xee, sizeof seen);
    was = seen;
    if (gpu_parse(line, &seen, &err) == 0) {
        assert_true(memchr(seen.uuid, '\0', sizeof seen.uuid) && memchr(seen.name, '\0', sizeof seen.name) && seen.uuid[0]);
        assert_true(strspn(seen.uuid, LETTERS) == strlen(seen.uuid));
        assert_true(seen.nprocesses >= -1 && seen.nprocesses <= GPU_PROCESSES);
        for (int i = 0; i < seen.nprocesses; i++)
            assert_non_null(memchr(seen.processes[i].name, '\0', sizeof seen.processes[i].name));
    } else {
        assert_true(err.code == ERR_PROTO && err.msg[0]);
        assert_memory_equal(&seen, &was, sizeof seen);
    }
    free(line);
}
