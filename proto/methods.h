/* SPDX-License-Identifier: Apache-2.0 */ /* proto/methods.h - the one list of methods of the control socket; detd,
 * detctl and the tests expand it. access: READ everyone who may connect; OWNER the job's owner and admins; WRITE
 * admins; SUBMIT users
 * whose jobs run as themselves: on a system daemon all but root and the daemon's user. params: "name:type" with type
 * int, string, bool, object, number; "?" = may be absent. */
#pragma once

/* The answer to root, who submits a job to a system daemon. detctl gives it without asking. */
#define ROOT_SUBMITS \
    "no job of the system's daemon runs as root: root submits for a user with --as NAME, which is short for `sudo -u NAME detctl ...`"

/* clang-format off */
#define METHODS(X)                                                                                                               \
    X(daemon_info, "daemon.info", READ, "", "versions, protocol, slots, counters, loop_max_ms")                                  \
    X(daemon_drain, "daemon.drain", WRITE, "reason:string", "start no more jobs; running jobs continue")                       \
    X(daemon_undrain, "daemon.undrain", WRITE, "", "start jobs again")                                                           \
    X(gpu_list, "gpu.list", READ, "", "devices of this node: name, memory, use, owner, state and why")                           \
    X(gpu_release, "gpu.release", WRITE, "uuid:string", "lift the quarantine of a GPU")                                          \
    X(job_submit, "job.submit", SUBMIT, "spec:object token:string", "queue a job; a repeated token returns the same id")         \
    X(job_list, "job.list", READ, "state:string? user:string? mine:bool? name:string? tag:string? since:number? limit:int? cursor:int?", \
      "jobs, newest first")                                                                                                      \
    X(job_get, "job.get", READ, "id:int", "one job with its attempts, last losses and checkpoints")                              \
    X(job_cancel, "job.cancel", OWNER, "id:int", "stop a job for good")                                                          \
    X(job_pause, "job.pause", OWNER, "id:int", "checkpoint, release the slots")                                                  \
    X(job_resume, "job.resume", OWNER, "id:int", "queue a paused or failed job again")                                                     \
    X(job_checkpoint, "job.checkpoint", OWNER, "id:int", "write a checkpoint at the next step boundary")                         \
    X(job_eval, "job.eval", OWNER, "id:int", "validate at the next step boundary")                                               \
    X(job_priority, "job.priority", OWNER, "id:int priority:int", "change the place in the queue")                               \
    X(job_extend, "job.extend", OWNER, "id:int steps:int", "give a completed job more steps, and queue it again")                \
    X(job_label, "job.label", OWNER, "id:int note:string? tags:string?", "a note and tags of a job: \"+night -base\"")          \
    X(job_rm, "job.rm", OWNER, "id:int", "remove a job that has ended: its rows, checkpoints and logs")                          \
    X(job_prune, "job.prune", OWNER,                                                                                             \
      "older:number keep_best:bool? dry_run:bool? user:string? limit:int? cursor:int?",                                          \
      "remove the caller's jobs (an admin: all) that ended so many seconds ago, a page at a time")                               \
    X(job_logs, "job.logs", READ, "id:int", "paths of the log files")                                                            \
    X(job_why, "job.why", READ, "id:int", "why a job waits, or why it ended")                                                    \
    X(loss_query, "loss.query", READ,                                                                                            \
      "id:int split:string? term:string? from:int? to:int? points:int? limit:int? cursor:string?", "rows of the loss view")      \
    X(eval_query, "eval.query", READ, "id:int metric:string? set:string? limit:int? cursor:string?", "evaluation results")       \
    X(deterministic_get, "deterministic.get", READ, "id:int?", "tier of the node, or of a job with its history")                 \
    X(deterministic_set, "deterministic.set", OWNER, "tier:string id:int?", "node default, or a running job from an agreed step") \
    X(event_query, "event.query", READ, "id:int? limit:int? cursor:int?", "events of a job or of the node")                      \
    X(job_usage, "job.usage", READ, "id:int limit:int? cursor:int?", "CPU, memory and GPUs that a job used, over time")          \
    X(user_usage, "user.usage", READ, "hours:int?", "slot hours granted to each user")                                            \
    X(subscribe, "subscribe", READ, "id:int? topics:string?", "notifications of jobs, losses, events, and of drops")
/* clang-format on */
