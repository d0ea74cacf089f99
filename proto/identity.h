/* SPDX-License-Identifier: Apache-2.0 */ /* proto/identity.h - the identity of an attempt: everything that its bits
 * depend on besides job, step and tier, as one JSON object (specs determinism 1.2). Rank 0 makes it
 * (worker/checkpoint/identity.h) and detd keeps it with the attempt. A comparison of two runs names the members that
 * differ.
 *
 *   hash                 32 hexadecimal digits of all the other members
 *   spec                 hash of the job's keys that decide results, except paths
 *   data                 {train, val}: hashes of the contents of the sets
 *   device, precision    device: "cpu", or the product name of the GPU
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

/* Writes "cudnn 9.19.0 (was 9.18.0), worker hash ... (was ...)" into ret, as far as it fits. Returns the number of
 * differences, 0: none. Compares only the members that both have. NULL has no members. */
int identity_compare(const json_t *was, const json_t *is, char *ret, size_t size);
