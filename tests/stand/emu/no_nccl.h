/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/no_nccl.h - put in front of cuda/backend.c: where
 * cuda/nccl.c is not linked its two rows are NULL, and ranks meet in shared memory. */
#pragma weak cuda_link_id
#pragma weak cuda_link_open
