/* daemon/run.h - who runs: slots granted, supervisors started, lost supervisors found by their locks. Everything runs on the loop. */
#pragma once

struct daemon;
struct err;
struct job;

/* Grants slots to queued jobs and starts their supervisors. */
void run_schedule(struct daemon *d);
/* Its supervisor said hello. */
void run_connected(struct daemon *d, struct job *j);
/* The connection of its supervisor is closed: its lock is tried. */
void run_disconnected(struct daemon *d, struct job *j);
/* Once a second: what time brings (life.h). */
void run_tick(struct daemon *d);
int run_cpu_free(const struct daemon *d);
int run_gpus_free(const struct daemon *d);
/* After the start of detd: which jobs may have processes. */
void run_adopt(struct daemon *d);
/* Then, and when the GPUs are known: jobs with processes take the slots they hold. */
void run_take_slots(struct daemon *d);
/* One sentence about why a job waits: queued, or with its slots and without a supervisor (job.trouble). */
void run_why(struct daemon *d, const struct job *j, char *ret, unsigned long size);
