/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/modelcheck.h - what `detctl check` does with a job's network: builds it and loads model.init, as the first attempt would. */
#pragma once
#include <stdio.h>

struct dataset;
struct err;
struct jobspec;
struct model_registry;

/* For the classes of the training split. Writes ignored keys of the network's .cfg to `warnings`, and
 * the loaded arrays to `facts`. Errors are those that end an attempt before its first step: a network that the
 * job's keys do not fit, weights that cannot be read, are another network's or hold numbers that are none. */
int modelcheck_run(const struct model_registry *models, const struct jobspec *spec, const struct dataset *train, FILE *facts,
                   FILE *warnings, struct err *err);
