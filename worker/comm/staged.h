/* SPDX-License-Identifier: Apache-2.0 */ /* worker/comm/staged.h - collectives over device memory that the host cannot
 * read, by way of host memory that the ranks share.
 *
 * It serves ranks that share one GPU (NCCL refuses that), a single rank, and tests. Every allocation is device memory
 * with a twin in memory of `host`, an open comm of the same ranks over shared memory. alltoall copies the data for
 * peers from the device to the twin, then this rank's chunks of the peers' twins to a stage on the device, where the
 * views point; its own chunk stays where it is. allgather copies the own part to the common twin and the others' parts
 * from there. Copies of COMM_GRAD are made on device `grad`, of COMM_SYNC on `sync`, after the work queued there; work
 * queued on that device afterwards finds the data. An operation therefore also waits for its device. Memory follows the
 * rules of comm.h: a caller that keeps them for the device memory keeps them for the twin.
 *
 * Barrier, broadcast and gather of host bytes pass on to `host`. The abort flag is host's. A single rank copies nothing
 * and never touches its twins. */
#pragma once

struct comm;
struct device;
struct err;

/* host, sync and grad stay the caller's and outlive the comm; sync and grad may be one device if one thread uses both
 * channels. host may carry operations of its own in between, by the same thread per channel and in the same order on
 * all ranks. Memory is of device `sync`, so comm_alloc*() and comm_close() belong to its thread; device memory is freed
 * by comm_close(). -ENOMEM: out of memory. */
int comm_open_staged(struct comm *host, struct device *sync, struct device *grad, struct comm **ret_comm, struct err *err);
