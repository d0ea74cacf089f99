/* daemon/run.h - who runs: slots granted, supervisors started, lost supervisors found by their locks. Everything runs on the loop. */
#pragma once

struct daemon;
struct err;
struct job;

/* Grants slots to queued jobs and starts their supervisors. */
void run_schedule(struct daemon *d);
/* The job's supervisor is gone: the slots of a job that ended are free, any other job has its lock tried. */
void run_supervisor_gone(struct daemon *d, struct job *j);
/* Once a second: jobs without a supervisor have their lock tried, those that do not leave are killed. */
void run_tick(struct daemon *d);
int run_cpu_free(const struct daemon *d);
int run_gpus_free(const struct daemon *d);
/* After a start, or when the GPUs are known: jobs that live take the slots they hold. */
void run_take_slots(struct daemon *d);
/* One sentence about why a job waits: queued, or with its slots and without a supervisor (job.trouble). */
void run_why(struct daemon *d, const struct job *j, char *ret, unsigned long size);
