/* SPDX-License-Identifier: Apache-2.0 */ /* proto/report.h - what ranks tell detd-job (fd 3), what detd-job tells detd (sup.sock), and the answers. All of it is JSON lines:
 * one object a line, its member "type" names the message. Unknown members are ignored; unknown types are logged and ignored.
 * Times are Unix seconds (real). Steps count completed steps. record.h checks these shapes; PROTOCOL.md has an example of each.
 *
 * fd 3, rank -> detd-job (every rank unless marked (0) = rank 0 only):
 *   hello       {rank, local_rank, nranks, pid, device, memory_bytes, versions:{...}, nccl_id?, uuid?, devices?}
 *               uuid: of the GPU that it uses, as "GPU-" or "MIG-" and the number, null on the CPU; devices: how many GPUs it sees. Where GPUs were
 *               granted, a rank that sees another one, or more than one, is a fault
 *   start  (0)  {resume_step, checkpoint}      which checkpoint all ranks load (0, null: none); detd-job then records attempt(n, resume_step)
 *   loss   (0)  {split:"train"|"val", step, epoch, tier, time, images_per_s, terms:{NAME:[num, den], ...}}      "total" is always there;
 *               non-finite numbers are null with nonfinite:[NAME, ...]
 *   eval   (0)  {step, time, metrics:{NAME:number|null, ...}}      more metrics than fit come in further records of that step
 *   checkpoint (0) {step, phase:"ready", path}                 written under a temporary name; waits for `publish`
 *                  {step, phase:"published", path, bytes, val_loss|null, best:bool}
 *   tier   (0)  {step, tier}                   proposal: from step `step` on; waits for `tier_ok`
 *   data   (0)  {split, images, boxes, skipped, bad:[up to 20 messages]}      after the data set was checked; what is wrong with records that stay is told in events
 *   identity (0) {identity:{hash, ...}}        what the bits of this attempt depend on (proto/identity.h); once more where it has changed
 *   event       {level:"info"|"warning"|"error", kind, text, tier?}      kind "tier": the change to that tier, which was asked for, does not come
 *   end         {outcome:"completed"|"failed"|"cancelled"|"paused", reason, class:"user"|"data"|"nonfinite"|"missing"|"fault"|""}   a rank's last line.
 *               class says who has to act. "fault" (and leaving without an `end`) is tried again run.restarts times. "missing": a file that was there is
 *               away; the job waits for it as long as it takes
 *   loss, eval, identity and checkpoint are faults before `start`. A line that is malformed, or longer than REPORT_MAX_LINE, is a fault of its rank.
 *
 * fd 3, detd-job -> rank:
 *   go          {nccl_id|null, store_id|null, attempt, tiers:[{step, tier}, ...]}    after all ranks' hello. store_id: of the database
 *                                              that numbered the job, kept in checkpoints; one of another database is refused. tiers:
 *                                              steps ascending, each tier from its step on. They win over run.deterministic of spec.json:
 *                                              the tier the job began with (step 1), and every durable change of it, so that steps
 *                                              trained again are trained in the same tier. [] at first
 *   publish (0) {step}                         every report written before `ready` is durable: rename the checkpoint now
 *   tier_ok (0) {step, tier}                   (step, tier) is durable
 *   control (0) {word:"pause"|"cancel"|"checkpoint"|"tier"|"eval", tier?}     acts on all ranks two steps later, by the control word
 *   End of file on fd 3: detd-job is gone; the rank has to leave.
 *
 * sup.sock (in the state folder; jobs/<id>/ is the working directory of detd-job, so it connects to ../../sup.sock), detd-job -> detd:
 *   hello   {protocol, job, attempt, nonce, pid, beats, first}  beats true: a status comes every 10 s, changed or not. nonce as given by --nonce
 *           (string). first: number of the oldest report that it still has; those before it that detd has not are lost
 *   report  {seq, rec:{"type":T, ...}}                   seq counts per job across attempts, without a gap
 *     T = loss, eval, data         as the rank wrote it
 *     T = checkpoint               as the rank wrote it, phase "published" only; the rest of it is as `ready` said
 *     T = event                    {level, kind, text, time, rank|null, attempt, tier?}     rank null: from detd-job. kind "hang" also has phase, step
 *     T = tier                     {step, tier, time}                          durable change of tier from that step on
 *     T = attempt                  {attempt, resume_step, time, ranks, device, first} detd deletes the job's rows with step > resume_step. first: none
 *                                  before it is of this detd-job, which counts cpu_seconds from 0
 *     T = identity                 {attempt, time, identity:{hash, ...}}       of that attempt; a later one replaces it
 *     T = ended                    {attempt, outcome:"failed"|"stopped", reason, class, time, cpu_seconds, seconds, max_rss}   an attempt is over and the job is
 *                                  not: another one follows, or an `end`. "stopped": not the job's fault, an `end` follows. It may
 *                                  come without `attempt` before it, when the ranks did not come so far as `start`
 *     T = end                      {attempt, outcome, reason, class, time, cpu_seconds, seconds, max_rss}     of the job (outcomes as of ranks); nothing follows.
 *                                  "paused" of class "missing": detd queues the job and starts it again after a minute
 *   status  {attempt, step, phase, images_per_s, cpu_seconds, max_rss, rss?, trouble?, ranks:[{rank, phase, step, pid}], seconds}     once a second while it changes;
 *           not sequenced, sent only while connected. cpu_seconds: of all ranks of all attempts since this detd-job started; seconds: since then; rss: bytes of all ranks now; max_rss: of the largest
 *           rank, at most. phase is rank 0's, or "backoff" between two attempts. trouble: what keeps the job from going on, in words
 * sup.sock, detd -> detd-job:
 *   welcome {last_seq, store_id, control:[{word, tier?, deadline?}, ...]}      answers hello; control: commands that are not carried out yet
 *   ack     {seq}                                        everything up to seq is committed; only acks trim the spool
 *   control {word, tier?, deadline?}                     deadline: seconds until the ranks are killed if they do not obey (cancel: 30 by default;
 *           the other words: none). A pause or cancel given twice is one; without a running attempt it acts at once
 *
 * Exit status of detd-job where it has not come so far as to connect; what it says of it stands in the file of --trouble-fd too:
 *   SUP_EXIT_UNREADABLE   its spool cannot be read
 *   SUP_EXIT_REFUSED      the system has not what it needs (room for the spool, memory, descriptors) or its disk fails: it may be started again
 *   SUP_EXIT_UNREACHABLE  it could not get into its folder, which is its submitter's (detd-launch): he has made it useless
 *
 * The environment and descriptors of a rank, set by detd-job: argv = detd-worker --job-dir DIR --rank R --ranks P --local-rank L --attempt N;
 * fd 3 = this socket, fd 4 = memfd of the shared-memory transport (one for all ranks of an attempt, empty at first: the ranks set its size),
 * fd 5 = its progress page (proto/progress.h), fd 6 = the job's lock (kept open, never used: lock free = no process of the job lives),
 * fd 7 = the CUDA plugin that lies beside the trainer, open for reading, where there is one (DETD_PLUGIN_FD=7 then);
 * stdin = /dev/null, stdout and stderr = log/rank-R.log; cwd = the job directory. spec.json there is the job. PR_SET_PDEATHSIG is
 * SIGKILL. Environment: PATH, HOME, USER, LOGNAME, TMPDIR, LANG, TZ, DETD_CUDA_PATH, CUDA_HOME, CUDA_PATH, VIRTUAL_ENV and CONDA_PREFIX as detd-job
 * has them, CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA_DEVICE_MAX_CONNECTIONS=32, NCCL_SOCKET_IFNAME=lo, run.env of the job, which wins over those, and
 * CUDA_VISIBLE_DEVICES = the UUID of its GPU where GPUs were granted. */
#pragma once

enum { REPORT_MAX_LINE = 64 << 10, SUP_PROTOCOL = 1, SUP_EXIT_UNREACHABLE = 73, SUP_EXIT_UNREADABLE = 74, SUP_EXIT_REFUSED = 75 };
enum { WORKER_FD_CONTROL = 3, WORKER_FD_COMM = 4, WORKER_FD_PROGRESS = 5, WORKER_FD_LOCK = 6, WORKER_FD_PLUGIN = 7 };
#define WORKER_ENV_PLUGIN "DETD_PLUGIN_FD"
#define WORKER_PLUGIN     "libdetd-cuda.so" /* its name beside the programs */

/* Longest line on sup.sock: a report is a rank's line and its envelope. */
enum { SUP_MAX_LINE = REPORT_MAX_LINE + 4096 };
