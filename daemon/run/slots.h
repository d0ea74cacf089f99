/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/slots.h - jobs and the node as the scheduler sees them
 * (sched.h). */
#pragma once
#include <stdbool.h>

#include "daemon/job/sched.h"

struct job;
struct runner;

/* True from the grant until no process of the job lives. */
bool slots_are_held(const struct job *j);
/* CPU slots that its ranks were granted; of a job on GPUs the slots that its threads would take. */
int slots_of_ranks(const struct runner *r, const struct job *j);
struct sched_job slots_view(const struct runner *r, const struct job *j);
struct sched_node slots_node(const struct runner *r);
/* Puts the jobs that have their slots into the node. Caller frees node->holders. False: no memory. */
bool slots_holders(const struct runner *r, struct sched_node *node);
