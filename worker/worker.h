/* SPDX-License-Identifier: Apache-2.0 */ /* worker/worker.h - detd-worker: a rank of a job. It also runs alone from a
 * job file, to check a data set, and to predict. */
#pragma once

struct model_registry;

/* The body of main(), with the networks of `models`. Returns the exit status. */
int worker_main(int argc, char **argv, const struct model_registry *models);
