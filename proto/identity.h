/* SPDX-License-Identifier: Apache-2.0 */ /* proto/identity.h - the identity of an attempt: what its bits depend on besides job, step and tier, as one JSON object (specs determinism 1.2).
 * Rank 0 makes it (worker/checkpoint/identity.h), detd keeps it with the attempt, and whoever compares two runs names what differs.
 *
 *   hash                 32 hexadecimal digits of all the rest
 *   spec                 hash of the keys of the job that decide results, but for paths
 *   data                 {train, val}: hashes of what the sets hold
 *   device, precision    "cpu", or the product name of the GPU
 *   files                {worker, plugin, model.cfg, model.init, codecs of pictures}: {version, hash} of each
 *   versions             {driver, cudnn, ...}: of the GPU's libraries; empty on CPUs, which all give the same bits
 *   environment          variables that these libraries read
 *   plan_count, plan_hash   algorithms that were chosen so far
 *
 * Ranks, hosts, folders and times are not part of it. */
#pragma once
#include <jansson.h>
#include <stddef.h>

enum { IDENTITY_MAX_BYTES = 3 << 10 }; /* as compact JSON: a thousand attempts fit into one reply */

/* Writes "cudnn 9.19.0 (was 9.18.0), worker hash ... (was ...)" into ret; what does not fit is left out. Returns how much differs, 0: nothing.
 * Compared is what both tell. NULL tells nothing. */
int identity_compare(const json_t *was, const json_t *is, char *ret, size_t size);
