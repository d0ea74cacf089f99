/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/usage.h - the resources that running jobs use, as rows of the
 * store: cores and memory from their supervisors, GPUs from the driver. */
#pragma once
struct gpus;
struct job;
struct jobs;

/* Once a second. */
void usage_tick(struct jobs *jobs, const struct gpus *gpus);
/* The time, on the clock of mono_s(), when a job will have trained all its steps at its pace since its supervisor came.
 * INFINITY: unknown. */
double usage_expected_end(const struct job *j, double now);
