/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/anchorfit.h - `detctl anchors`: anchors for the boxes of a
 * job's training split, as its network sees them. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct err;
struct jobspec;
struct model_registry;

/* count: anchors; 0: as many as the network has. Boxes are as large as in a letterbox of the network's nominal input:
 * no augmentation changes them. Prints the key for the job file and how well these and the network's own anchors fit.
 * ERR_UNSUPPORTED: another family's network. */
int anchorfit_run(const struct model_registry *models, const struct jobspec *spec, int count, bool json, FILE *out, struct err *err);
