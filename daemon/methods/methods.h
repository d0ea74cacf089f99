/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods/methods.h - the methods for clients: the table of
 * proto/methods.h with a function for each row. */
#pragma once
#include <stdint.h>

#include "daemon/job/job.h"

struct err;
struct request;

/* Finds the method, checks access and calls it. Returns 0, REQUEST_LATER or an error. Unknown names: ERR_UNSUPPORTED,
 * field "method". */
int method_call(struct request *rq, const char *name, struct err *err);

/* The functions; each is one method of the table. methods_submit.c has job.submit; methods_reopen.c job.extend and
 * job.resume; methods_label.c job.label; methods_remove.c job.rm and job.prune; methods_job.c the other job.*;
 * methods_gpu.c gpu.*; methods_query.c the queries of the store; methods.c the rest. */
typedef int method_fn(struct request *rq, struct err *err);
method_fn do_daemon_info, do_user_usage, do_daemon_drain, do_daemon_undrain, do_gpu_list, do_gpu_release, do_job_submit, do_job_list,
    do_job_get, do_job_cancel, do_job_pause, do_job_resume, do_job_checkpoint, do_job_eval, do_job_priority, do_job_extend, do_job_label,
    do_job_rm, do_job_prune, do_job_logs, do_job_why, do_loss_query, do_eval_query, do_deterministic_get, do_deterministic_set,
    do_event_query, do_job_usage, do_subscribe;

/* Prepares an event of the job (0: of the node) that names the caller; request_granted() adds it once the change is
 * durable. Must be called before the change is requested: the answer may come at once, and frees the request. */
void request_note(struct request *rq, int64_t job, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* request_done(), and if rc is 0 also the prepared event. */
void request_granted(struct request *rq, int rc, const struct err *err);

/* The same; rc JOBS_NOTED or JOBS_REMEMBERED: the result also says that the change is not on the disk yet. */
void request_carried_out(struct request *rq, int rc, const struct err *err);

/* Applies a wish of the owner to the job of params.id; messages call the wish `what`. ERR_STATE if the job is not
 * in memory. Returns the same values as a method_fn. */
int methods_command(struct request *rq, enum job_event event, const char *what, struct err *err);

/* Fetches params like json_unpack(). Names and types were checked against the table before the method was called. */
int params_unpack(struct request *rq, struct err *err, const char *fmt, ...);
