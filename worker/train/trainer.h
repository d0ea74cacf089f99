/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/trainer.h - the life of a rank: from the job file to the last
 * report. All ranks run the same steps in lockstep (docs/internals/walks.md). */
#pragma once

struct device_ops;
struct err;
struct jobspec;
struct model_registry;

struct trainer_options {
    const struct model_registry *models; /* outlives the run */
    const struct device_ops *backend;
    const char *why_cpu; /* why run.device auto did not take a GPU; NULL: nothing to say */
    const char *job_dir; /* holds index.*, checkpoints/ */
    int rank, nranks, local_rank, attempt;
    int control_fd, comm_fd, progress_fd; /* see proto/report.h; -1 each for a rank that runs alone */
};

/* Trains until the job is completed, paused, cancelled or failed, and reports that (report_end). Returns 0 if the
 * outcome was reported and is not a failure. Else returns the code of the failure, which was also reported unless
 * detd-job is gone; *err tells it in words. */
int trainer_run(const struct jobspec *spec, const struct trainer_options *opt, struct err *err);
/* For a job that cannot begin here (no such device): reports *why as the job's end. Returns why->code. */
int trainer_refuse(const struct trainer_options *opt, const struct err *why);
