/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods/methods.h - what clients may ask: the table of proto/methods.h with a function a row. */
#pragma once
#include <stdint.h>

#include "daemon/job/job.h"

struct err;
struct request;

/* Finds the method, checks access and calls it. Returns 0, REQUEST_LATER or an error. Unknown names: ERR_UNSUPPORTED, field "method". */
int method_call(struct request *rq, const char *name, struct err *err);

/* The functions; each is one method of the table. methods_job.c has job.*, but methods_submit.c job.submit, methods_reopen.c job.extend and job.resume,
 * methods_label.c job.label, methods_remove.c job.rm and job.prune; methods_gpu.c gpu.*, methods_query.c what reads the store,
 * methods.c the rest. */
typedef int method_fn(struct request *rq, struct err *err);
method_fn do_daemon_info, do_daemon_drain, do_daemon_undrain, do_gpu_list, do_gpu_release, do_job_submit, do_job_list, do_job_get,
    do_job_cancel, do_job_pause, do_job_resume, do_job_checkpoint, do_job_eval, do_job_priority, do_job_extend, do_job_label, do_job_rm,
    do_job_prune, do_job_logs, do_job_why, do_loss_query, do_eval_query, do_deterministic_get, do_deterministic_set, do_event_query,
    do_job_usage, do_subscribe;

/* An event of the job (0: of the node) says who asked for this, once request_granted() was told that it is durable. To be called before it is asked for: the answer may
 * come at once, and frees the request. */
void request_note(struct request *rq, int64_t job, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* request_done(), and where rc is 0 what was noted. */
void request_granted(struct request *rq, int rc, const struct err *err);

/* Applies a wish of the owner to the job of params.id; `what` names the wish in messages. Refused with ERR_STATE where the job is not in memory. Returns as a
 * method_fn does. */
int methods_command(struct request *rq, enum job_event event, const char *what, struct err *err);

/* Fetches params like json_unpack(). Names and types were checked against the table before the method was called. */
int params_unpack(struct request *rq, struct err *err, const char *fmt, ...);
