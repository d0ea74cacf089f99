#include "daemon/schema.h" /* SPDX-License-Identifier: Apache-2.0 */

/* The assembler reads the file relative to the folder the compiler runs in, which is the root of the source tree. */
#define EMBED(symbol, file)                       \
    __asm__(".section .rodata\n"                  \
            ".global " #symbol "\n" #symbol ":\n" \
            ".incbin \"" file "\"\n"              \
            ".byte 0\n"                           \
            ".previous\n");                       \
    extern const char symbol[];

EMBED(schema_001, "schema/001_base.sql")
EMBED(schema_002, "schema/002_gpus.sql")
EMBED(schema_003, "schema/003_evidence.sql")
EMBED(schema_004, "schema/004_specs.sql")
EMBED(schema_005, "schema/005_removed.sql")
EMBED(schema_006, "schema/006_cleared.sql")
EMBED(schema_007, "schema/007_after.sql")
EMBED(schema_008, "schema/008_backfill.sql")
EMBED(schema_009, "schema/009_usage.sql")
EMBED(schema_010, "schema/010_tickets.sql")
EMBED(schema_011, "schema/011_reported.sql")
EMBED(schema_012, "schema/012_labels.sql")
EMBED(schema_013, "schema/013_evaluations.sql")
EMBED(schema_014, "schema/014_seconds.sql")

const char *schema_migration(int n)
{
    static const char *const all[SCHEMA_VERSION] = { schema_001, schema_002, schema_003, schema_004, schema_005, schema_006, schema_007,
                                                     schema_008, schema_009, schema_010, schema_011, schema_012, schema_013, schema_014 };

    return all[n - 1];
}
