#include "daemon/store/schema.h" /* SPDX-License-Identifier: Apache-2.0 */

/* The assembler reads the file relative to the folder in which the compiler runs: the root of the source tree. */
#define EMBED(symbol, file)                       \
    __asm__(".section .rodata\n"                  \
            ".global " #symbol "\n" #symbol ":\n" \
            ".incbin \"" file "\"\n"              \
            ".byte 0\n"                           \
            ".previous\n");                       \
    extern const char symbol[];

EMBED(schema_001, "schema/001_detd.sql")

static const char *const steps[] = { schema_001 };

int schema_version(void)
{
    return sizeof steps / sizeof *steps;
}

const char *schema_step(int n)
{
    return steps[n - 1];
}
