/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/best.h - the best value of a job's validations. Pure. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Takes a value of a validation as the member "best" of losses, {"metric":NAME, "value":V, "step":N}, if it is better
 * than the member that is there. Of equal values the first one stays. Only finite values of AP, mAP and abs_rel count;
 * a job has one of these metrics, or else the first one in this order counts. Returns whether losses changed. */
bool best_take(json_t *losses, const char *metric, double value, int64_t step);
