/* SPDX-License-Identifier: Apache-2.0 */ /* proto/report.h - the messages on fd 3 (between a rank and detd-job) and on
 * sup.sock (between detd-job and detd). All messages are JSON lines: one object a line. Its member "type" names the
 * message. Unknown members are ignored. Unknown types are logged and ignored. Times are Unix seconds (real). Steps
 * count completed steps. record.h checks these shapes; PROTOCOL.md has an example of each.
 *
 * fd 3, rank -> detd-job (every rank unless marked (0) = rank 0 only):
 *   hello       {rank, local_rank, nranks, pid, device, memory_bytes, versions:{...}, nccl_id?, uuid?, devices?}
 *               uuid: of the GPU that the rank uses, as "GPU-" or "MIG-" and the number, null on the CPU. devices: the
 *               number of GPUs that it sees. If GPUs were granted, a rank that sees another GPU, or more than one, is a
 *               fault
 *   start  (0)  {resume_step, checkpoint}      the checkpoint that all ranks load (0, null: they begin from scratch);
 *               detd-job then records attempt(n, resume_step)
 *   loss   (0)  {split:"train"|"val", step, epoch, tier, time, images_per_s, terms:{NAME:[num, den], ...}}      "total"
 *               is always there; non-finite numbers are null with nonfinite:[NAME, ...]
 *   eval   (0)  {step, time, metrics:{NAME:number|null, ...}}      metrics that do not fit come in further records of
 *               that step
 *   checkpoint (0) {step, phase:"ready", path}                 written under a temporary name; waits for `publish`
 *                  {step, phase:"published", path, bytes, val_loss|null, best:bool}
 *   tier   (0)  {step, tier}                   proposal: from step `step` on; waits for `tier_ok`
 *   data   (0)  {split, images, boxes, skipped, bad:[up to 20 messages]}      after the data set was checked. Flaws of
 *               records that are kept come as events
 *   identity (0) {identity:{hash, ...}}        everything that the bits of this attempt depend on (proto/identity.h);
 *                sent again after a change
 *   event       {level:"info"|"warning"|"error", kind, text, tier?}      kind "tier": the requested change to that tier
 *               will not happen
 *   end         {outcome:"completed"|"failed"|"cancelled"|"paused", reason,
 *               class:"user"|"data"|"nonfinite"|"missing"|"fault"|""}   a rank's last line. class tells the party that
 *               has to act. "fault" (and leaving without an `end`) is tried again run.restarts times. "missing": a file
 *               is gone that was there before; the job waits until it is back, however long
 *   loss, eval, identity and checkpoint are faults before `start`. A line that is malformed, or longer than
 *   REPORT_MAX_LINE, is a fault of its rank.
 *
 * fd 3, detd-job -> rank:
 *   go          {nccl_id|null, store_id|null, attempt, tiers:[{step, tier}, ...]}    after all ranks' hello.
 *               store_id: of the database that numbered the job. Checkpoints keep it; a checkpoint of another database
 *               is refused.
 *               tiers: steps ascending, each tier from its step on. They win over run.deterministic of spec.json. They
 *               are the tier that the job began with (step 1) and every durable change of it, so that steps trained
 *               again are trained in the same tier. [] at first
 *   publish (0) {step}                         every report written before `ready` is durable: rename the checkpoint
 *               now
 *   tier_ok (0) {step, tier}                   (step, tier) is durable
 *   control (0) {word:"pause"|"cancel"|"checkpoint"|"tier"|"eval", tier?}     acts on all ranks two steps later, by the
 *               control word
 *   End of file on fd 3: detd-job is gone; the rank has to leave.
 *
 * sup.sock (in the state folder; jobs/<id>/ is the working directory of detd-job, so it connects to ../../sup.sock),
 * detd-job -> detd:
 *   hello   {protocol, job, attempt, nonce, pid, beats, first}
 *           beats true: a status comes every 10 s, changed or not. nonce: as given by --nonce (string). first: number
 *           of the oldest report that detd-job still has; earlier reports that detd lacks are lost
 *   report  {seq, rec:{"type":T, ...}}                   seq counts per job across attempts, without a gap. A time
 *                                  before the submission, or after now, is moved there
 *     T = loss, eval, data         as the rank wrote it
 *     T = checkpoint               as the rank wrote it, phase "published" only; its other members are as in `ready`
 *     T = event                    {level, kind, text, time, rank|null, attempt, tier?}     rank null: from detd-job.
 *                                  kind "hang" also has phase, step
 *     T = tier                     {step, tier, time}                          durable change of tier from that step
 *                                  on
 *     T = attempt                  {attempt, resume_step, time, ranks, device, first} detd deletes the job's rows with
 *                                  step > resume_step. first: the first attempt of this detd-job, which counts
 *                                  cpu_seconds from 0. Numbers rise, and are at most 1,000,000: others are left out
 *     T = identity                 {attempt, time, identity:{hash, ...}}       of that attempt; a later one replaces
 *                                  it
 *     T = ended                    {attempt, outcome:"failed"|"stopped", reason, class, time, cpu_seconds, seconds,
 *                                  max_rss}   an attempt is over but the job is not: another attempt or an `end`
 *                                  follows. "stopped": not the job's fault, an `end` follows. It may come without an
 *                                  `attempt` before it, when the ranks did not reach `start`
 *     T = end                      {attempt, outcome, reason, class, time, cpu_seconds, seconds, max_rss}     the job
 *                                  is over (outcomes as of ranks); nothing follows. "paused" of class "missing": detd
 *                                  queues the job and starts it again after a minute
 *   status  {attempt, step, phase, images_per_s?, pausable?, cpu_seconds, max_rss, rss?, trouble?,
 *           ranks:[{rank, phase, step, pid}], seconds}
 *           once a second while it changes; not sequenced, sent only while connected. cpu_seconds: of all ranks of all
 *           attempts since this detd-job started. seconds: since then. rss: bytes of all ranks now. max_rss: the
 *           highest use of the largest rank. phase is rank 0's, or "backoff" between two attempts. trouble: a text, why
 *           the job makes no progress
 * sup.sock, detd -> detd-job:
 *   welcome {last_seq, store_id, control:[{word, tier?, deadline?}, ...]}      answers hello; control: commands that
 *           are not carried out yet
 *   ack     {seq}                                        everything up to seq is committed; only acks trim the spool
 *   control {word, tier?, deadline?}                     deadline: seconds until ranks that do not obey are killed
 *           (cancel: 30 by default; the other words: no deadline). A pause or cancel given twice counts once; without a
 *           running attempt it acts at once
 *
 * Exit status of a detd-job that leaves before it has connected. The file of --trouble-fd then holds its message,
 * too:
 *   SUP_EXIT_UNREADABLE   its spool cannot be read
 *   SUP_EXIT_REFUSED      the system lacks something (room for the spool, memory, descriptors), or the disk
 *                         fails before the first report: it may be started again
 *   SUP_EXIT_UNREACHABLE  it cannot use its folder, which belongs to the submitter (detd-launch): the submitter has
 *                         made the folder unusable
 *
 * The environment and descriptors of a rank, set by detd-job: argv = detd-worker --job-dir DIR --rank R --ranks P
 * --local-rank L --attempt N; fd 3 = this socket, fd 4 = memfd of the shared-memory transport (one for all ranks of an
 * attempt, empty at first: the ranks set its size), fd 5 = its progress page (proto/progress.h), fd 6 = the job's lock
 * (kept open, never used: lock free = no process of the job lives), fd 7 = the CUDA plugin beside the trainer, open for
 * reading, if there is one (then DETD_PLUGIN_FD=7); stdin = /dev/null, stdout and stderr = log/rank-R.log; cwd = the
 * job directory. spec.json there is the job. PR_SET_PDEATHSIG is SIGKILL. Environment: PATH, HOME, USER, LOGNAME,
 * TMPDIR, LANG, TZ, DETD_CUDA_PATH, CUDA_HOME, CUDA_PATH, VIRTUAL_ENV and CONDA_PREFIX as detd-job has them,
 * CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA_DEVICE_MAX_CONNECTIONS=32, NCCL_SOCKET_IFNAME=lo, run.env of the job, which wins
 * over those, and CUDA_VISIBLE_DEVICES = the UUID of its GPU if GPUs were granted. */
#pragma once

enum { REPORT_MAX_LINE = 64 << 10, SUP_PROTOCOL = 1, SUP_EXIT_UNREACHABLE = 73, SUP_EXIT_UNREADABLE = 74, SUP_EXIT_REFUSED = 75 };
enum { WORKER_FD_CONTROL = 3, WORKER_FD_COMM = 4, WORKER_FD_PROGRESS = 5, WORKER_FD_LOCK = 6, WORKER_FD_PLUGIN = 7 };
#define WORKER_ENV_PLUGIN "DETD_PLUGIN_FD"
#define WORKER_PLUGIN     "libdetd-cuda.so" /* its name beside the programs */

/* Descriptors of a rank of a program, and the variables that name them as NUMBER:INODE. Descriptor 6 is the job's lock,
 * as for a worker; 5 and 7 are closed. PROTOCOL.md has the whole environment. */
enum { PROGRAM_FD_REPORT = 3, PROGRAM_FD_PAGE = 4 };
#define PROGRAM_ENV_REPORT "DETD_REPORT"
#define PROGRAM_ENV_PAGE   "DETD_PAGE"

/* Longest line on sup.sock: a report is a rank's line and its envelope. */
enum { SUP_MAX_LINE = REPORT_MAX_LINE + 4096 };
