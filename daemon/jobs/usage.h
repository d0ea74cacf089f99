/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/usage.h - what running jobs use of the machine, as rows of the store: cores and memory as their supervisors say, GPUs as the driver does. */
#pragma once
struct gpus;
struct job;
struct jobs;

/* Once a second. */
void usage_tick(struct jobs *jobs, const struct gpus *gpus);
/* On the clock of mono_s(), when a job will have trained all its steps at the pace that it had since its supervisor came; INFINITY: nobody knows. */
double usage_expected_end(const struct job *j, double now);
