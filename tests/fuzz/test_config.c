/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_config.c - uses: proto daemon
 * The settings of detd. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/base/config.h"
#include "proto/err.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "config";
const int fuzz_places = 120;

static bool is_path(const char *path, size_t max)
{
    return path[0] == '\0' || (path[0] == '/' && strlen(path) <= max);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    struct config *cfg = calloc(1, sizeof *cfg);
    char *text = malloc(size + 1);
    struct err err = { 0 };
    int rc;

    memcpy(text, bytes, size);
    text[size] = '\0';
    rc = config_parse(text, "seed", cfg, &err);
    assert_true(is_path(cfg->state, CONFIG_PATH_MAX) && is_path(cfg->socket, CONFIG_SOCKET_MAX));
    assert_true(cfg->slots >= 0 && cfg->slots <= 4096 && cfg->tier >= 0 && cfg->tier <= 2);
    if (rc < 0) /* the line is named */
        assert_true(err.code == rc && strncmp(err.msg, "seed:", 5) == 0 && err.msg[5] >= '1' && err.msg[5] <= '9');
    free(text);
    free(cfg);
}
