/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/welcome.h - the first words between this program and detd on
 * each connection. */
#pragma once
#include <jansson.h>
#include <stddef.h>

struct err;
struct job_options;
struct spool;

/* Writes the line that this program begins with. */
int welcome_hello(const struct job_options *o, int attempt, const struct spool *spool, char *ret, size_t size, struct err *err);
/* Takes detd's answer: what detd has stored is acked. Fails if this detd has another database; then nothing is changed
 * and reports are kept. */
int welcome_take(struct spool *spool, const json_t *msg, struct err *err);
