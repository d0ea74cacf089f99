/* daemon/usage.h - what running jobs use of the machine, as rows of the store: cores and memory as their supervisors say, GPUs as the driver does. */
#pragma once
struct gpus;
struct jobs;

/* Once a second. */
void usage_tick(struct jobs *jobs, const struct gpus *gpus);
