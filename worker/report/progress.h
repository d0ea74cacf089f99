/* SPDX-License-Identifier: Apache-2.0 */ /* worker/report/progress.h - a rank's side of the progress page
 * (proto/progress.h): tells the rank's activity, and that it lives.
 *
 * Setters are a few relaxed stores, from the trainer's thread; progress_collective() may be called by the communication
 * thread as well. A thread of its own beats every second and does nothing else, so a rank that computes for long is
 * still alive. */
#pragma once
#include <stdint.h>

#include "proto/progress.h"

struct err;

/* Maps the page in fd (not owned; -1: a page without readers, for a worker that runs alone) and starts the heartbeat.
 * Caller closes. */
int progress_open(int fd, struct progress **ret, struct err *err);
void progress_close(struct progress *p);

void progress_phase(struct progress *p, enum progress_phase phase); /* also sets done and todo to 0 */
void progress_step(struct progress *p, uint64_t step);
/* Enters the channel's next collective; its kind and size hash to `fingerprint`. A channel's calls must come from one
 * thread. */
void progress_collective(struct progress *p, enum progress_channel channel, uint64_t fingerprint);
void progress_images(struct progress *p, uint64_t images_of_rank, uint64_t images_of_job);
void progress_done(struct progress *p, uint64_t done, uint64_t todo);
/* A further layer is computed, or gone back. */
void progress_layer(struct progress *p);
