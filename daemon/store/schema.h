/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/schema.h - the schema of detd.db: the files schema/NNN_*.sql,
 * embedded into the program. */
#pragma once

enum { SCHEMA_APPLICATION = 0x64657464 };

/* The number of files. */
int schema_version(void);
/* SQL text that takes a database from version n - 1 to n, 1 <= n <= schema_version(). Static. */
const char *schema_step(int n);
