/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/modelcheck.h - the part of `detctl check` for a job's network:
 * builds it and loads model.init, like the first attempt would. */
#pragma once
#include <stdio.h>

struct dataset;
struct err;
struct jobspec;
struct model_registry;

/* For the classes of the training split. Writes ignored keys of the network's .cfg to `warnings`, and the loaded arrays
 * to `facts`. Fails with the errors that end an attempt before its first step: job keys that do not fit the network, or
 * weights that cannot be read, belong to another network or are not finite. */
int modelcheck_run(const struct model_registry *models, const struct jobspec *spec, const struct dataset *train, FILE *facts,
                   FILE *warnings, struct err *err);
