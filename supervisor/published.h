/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/published.h - the checkpoints that lie in the job's folder, whoever has said so. */
#pragma once
#include <stdint.h>

/* Step of the newest in ./checkpoints; 0: there is none, or they cannot be looked at. Whether it is whole is for the ranks to find. */
int64_t published_newest(void);
