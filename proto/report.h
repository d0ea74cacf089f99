/* proto/report.h - what ranks tell detd-job (fd 3), what detd-job tells detd (sup.sock), and the answers. All JSON lines.
 *
 * fd 3, rank -> detd-job (every rank unless marked (0) = rank 0 only). "type" is first; unknown members are ignored; unknown types are logged.
 *   hello       {rank, local_rank, nranks, pid, device, memory_bytes, versions:{...}}
 *   start  (0)  {resume_step, checkpoint}      which checkpoint all ranks load (0, null: none); detd-job then records attempt(n, resume_step)
 *   loss   (0)  {split:"train"|"val", step, epoch, tier, time, images_per_s, terms:{NAME:[num, den], ...}}      "total" is always there;
 *               non-finite numbers are null with nonfinite:[NAME, ...]
 *   eval   (0)  {step, time, metrics:{NAME:number, ...}}
 *   checkpoint (0) {step, phase:"ready", path}                 written under a temporary name; waits for `publish`
 *                  {step, phase:"published", path, bytes, val_loss|null, best:bool}
 *   tier   (0)  {step, tier}                   proposal: from step `step` on; waits for `tier_ok`
 *   data        {split, images, boxes, skipped, bad:[up to 20 messages]}      (0) after the data set was checked
 *   event       {level:"info"|"warning"|"error", kind, text}
 *   end         {outcome:"completed"|"failed"|"cancelled"|"paused", reason, class:"user"|"data"|"nonfinite"|"fault"|""}   ranks: their last line
 * fd 3, detd-job -> rank
 *   go          {nccl_id|null, attempt}        after all ranks' hello
 *   publish (0) {step}                         every report up to `step` is durable: rename the checkpoint now
 *   tier_ok (0) {step, tier}
 *   control (0) {word:"pause"|"cancel"|"checkpoint"|"tier"|"eval", tier?}     acts on all ranks two steps later, by the control word
 *
 * sup.sock, detd-job -> detd
 *   hello   {protocol, job, attempt, nonce, pid}
 *   report  {seq, rec:{one of loss, eval, checkpoint(published), tier, data, event, or below}}     seq counts per job across attempts
 *             rec attempt   {attempt, resume_step, time, ranks, device}    detd deletes the job's rows with step > resume_step
 *             rec ended     {attempt, outcome, reason, time}             of an attempt that is followed by another
 *             rec end       {outcome, reason, class, time}               of the job; a spool record, never an exit status
 *   status  {step, phase, images_per_s, cpu_seconds, max_rss, ranks:[{rank, phase, step}]}       once a second while it changes; not sequenced
 * sup.sock, detd -> detd-job
 *   welcome {last_seq, store_id, control:[words not yet carried out]}
 *   ack     {seq}                              committed; only acks trim the spool
 *   control {word, tier?, deadline?}
 *
 * The environment and descriptors of a rank, set by detd-job: argv = detd-worker --job-dir DIR --rank R --ranks P --local-rank L --attempt N; fd 3 = this
 * socket, fd 4 = memfd of the shared-memory transport (one for all ranks), fd 5 = its progress page (proto/progress.h); stdout and
 * stderr = log/rank-R.log; cwd = the job directory. spec.json there is the job. */
#pragma once

enum { REPORT_MAX_LINE = 64 << 10, SUP_PROTOCOL = 1 };
enum { WORKER_FD_CONTROL = 3, WORKER_FD_COMM = 4, WORKER_FD_PROGRESS = 5 };
