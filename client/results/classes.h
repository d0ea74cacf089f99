/* SPDX-License-Identifier: Apache-2.0 */ /* client/results/classes.h - what an evaluation says of each class: metrics are called WHAT:CLASS (segm_WHAT:CLASS of masks), and a class has one row of them here. */
#pragma once
#include <jansson.h>
#include <stdint.h>

/* The newest step of eval.query's rows; 0: there are none. */
json_int_t classes_newest(const json_t *rows);
/* That step's classes, as a table, CSV ('c') or JSON ('j'). An exit code; where there are none, it says so. */
int classes_print(int64_t job, const json_t *rows, int how);
