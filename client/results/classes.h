/* SPDX-License-Identifier: Apache-2.0 */ /* client/results/classes.h - the results of an evaluation by class. Metrics
 * of a class are called METRIC:CLASS (segm_METRIC:CLASS for masks); here each class has a row of them. */
#pragma once
#include <jansson.h>
#include <stdint.h>

/* The newest step in the rows of eval.query; 0: no rows. */
json_int_t classes_newest(const json_t *rows);
/* Prints that step's classes as a table, CSV ('c') or JSON ('j'). Returns an exit code. Says so if there are no
 * classes. */
int classes_print(int64_t job, const json_t *rows, int how);
