/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/clock.h - the two clocks of the daemon. */
#pragma once
#include <stdbool.h>

double now_s(void);       /* Unix time: for times that are stored and shown */
bool clock_is_kept(void); /* whether the kernel calls the first one synchronised; false if it may not be asked */
double mono_s(void);      /* monotonic, never set: for pauses and deadlines */
