/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/gpu/gpu_probe.h - the child that asks the GPU driver, so that a hung
 * driver holds up only this child. It writes JSON lines on stdout, one object each:
 *
 *   {"uuid", "name", "index", "driver", "divided", "memory_bytes", "memory_used", "utilisation", "temperature",
 *    "power_w", "ecc_errors", "processes":[{"pid", "memory_bytes", "session", "name"}]}
 *                          a device; numbers that the driver does not give are -1, processes null
 *   {"done":N}             N devices were printed: the end of an observation
 *   {"xid":N, "uuid"}      the driver reports error N of a device, at any time
 *   {"absent":TEXT}        there is no driver; {"trouble":TEXT} it cannot be asked; then the child leaves
 *
 * Only devices that CUDA_VISIBLE_DEVICES allows are printed. In MIG mode a GPU is "divided" and its instances follow as
 * devices of their own. */
#pragma once

/* `detd --probe-gpus`: one observation. Returns the exit status. */
int gpu_probe_main(void);
/* `detd --watch-gpus`: an observation for each line on stdin until its end, and errors when they happen. */
int gpu_watch_main(void);
