/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/ranks/log.h - lines of this program on stderr, which detd makes
 * a file; and the time of records. */
#pragma once

void job_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
double job_time(void); /* Unix seconds */
