/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/spool/published.h - the newest checkpoint in the job's folder,
 * by its name alone. */
#pragma once
#include <stdint.h>

/* Step of the newest folder step-N in ./checkpoints; 0: no such folder, or ./checkpoints cannot be read. The checkpoint
 * may be damaged: the ranks verify it (worker/checkpoint/ckpt.h). */
int64_t published_newest(void);
