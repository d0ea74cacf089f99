/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/clock.h - the clocks of the daemon. */
#pragma once

double now_s(void);  /* Unix time: for times that are stored and shown */
double boot_s(void); /* since the boot of the node, the time that it slept included; never set: for ages of stored things */
double mono_s(void); /* monotonic, never set: for pauses and deadlines */
