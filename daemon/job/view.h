/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/view.h - the object of a job for clients, as JSON text. Pure. */
#pragma once
#include <stdint.h>

#include "daemon/job/job.h"
#include "daemon/base/text.h"

/* The object without its closing brace, so that job.get can add members. root: folder of the job folders. phase NULL:
 * "". losses: JSON text, {"train":{TERM:value}, "val":{...}}. */
void view_job(struct text *out, const struct job_row *row, const char *root, const char *phase, const char *losses);
