/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/libfuzzer.c - what libFuzzer calls. A failed assertion of cmocka outside one of its tests ends the program, which libFuzzer takes for a find. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fuzz_one(size ? bytes : (const uint8_t *)"", size); /* it has none, not even a place */
    return 0;
}
