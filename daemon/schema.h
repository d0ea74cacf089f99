/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/schema.h - the migrations of schema/NNN_*.sql, embedded into the program. */
#pragma once

enum { SCHEMA_VERSION = 14, SCHEMA_APPLICATION = 0x64657464 };

/* SQL text that takes a database from version n - 1 to n, 1 <= n <= SCHEMA_VERSION. Static. */
const char *schema_migration(int n);
