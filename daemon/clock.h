/* daemon/clock.h - the two clocks of the daemon. */
#pragma once

double now_s(void);  /* Unix time: for what is stored and shown */
double mono_s(void); /* of a clock that nobody sets: for pauses and deadlines */
