/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/libfuzzer.c - the function called by libFuzzer. A failed
 * assertion of cmocka outside a test ends the program, and libFuzzer reports this as a find. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fuzz_one(size ? bytes : (const uint8_t *)"", size); /* an empty input may come with a null pointer */
    return 0;
}
