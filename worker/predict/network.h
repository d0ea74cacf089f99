/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/network.h - a job's network with the weights of a
 * checkpoint, on the CPU. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "worker/models/classes.h"

struct device;
struct err;
struct jobspec;
struct model;
struct model_registry;

struct network {
    struct jobspec *spec;
    struct device *dev;
    struct model *model;
    struct class_list classes;
    bool masked;  /* it finds masks */
    bool deep;    /* it gives depth */
    int64_t step; /* of the checkpoint */
};

/* checkpoint: see choice_make(); the choice and its reason are reported to out. n must be zero before; call
 * network_close() also after a failure. */
int network_open(struct network *n, const struct model_registry *models, const char *job_dir, const char *checkpoint, FILE *out,
                 struct err *err);
void network_close(struct network *n);
