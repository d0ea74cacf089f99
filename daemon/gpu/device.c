#include "daemon/gpu/device.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/job/job.h"
#include "daemon/job/sched.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"

enum { NODE_TEXT = 400 };

static int choose(char **key, const char *word, struct err *err)
{
    char *copy = strdup(word);

    if (!copy)
        return err_set(err, -ENOMEM, "out of memory");
    free(*key);
    *key = copy;
    return 0;
}

/* Says how many GPUs this node has and how many of them cannot be trusted, or why it has no GPU. */
static void tell_node(const struct device_node *n, char *ret, size_t size)
{
    if (n->gpus.devices == 0)
        snprintf(ret, size, "this node has no GPUs%s%s%s", n->why_none[0] ? " (" : "", n->why_none, n->why_none[0] ? ")" : "");
    else if (n->gpus.quarantined)
        snprintf(ret, size, "this node has %d, and %d of them are quarantined (detctl gpus says why)", n->gpus.devices,
                 n->gpus.quarantined);
    else
        snprintf(ret, size, "this node has %d", n->gpus.devices);
}

static int choose_device(struct jobspec *spec, int need, const struct device_node *n, char note[DEVICE_TEXT], struct err *err)
{
    char node[NODE_TEXT];
    bool cuda = n->plugin && need <= n->gpus.usable && need <= JOB_GPUS_MAX;

    tell_node(n, node, sizeof node);
    if (cuda)
        snprintf(note, DEVICE_TEXT, "run.device auto: runs on GPUs: needs %d, %s", need, node);
    else if (!n->plugin)
        snprintf(note, DEVICE_TEXT, "run.device auto: runs on the CPU: libdetd-cuda.so does not lie beside detd");
    else if (n->gpus.devices == 0)
        snprintf(note, DEVICE_TEXT, "run.device auto: runs on the CPU: %s", node);
    else
        snprintf(note, DEVICE_TEXT, "run.device auto: runs on the CPU: needs %d GPUs, %s", need, node);
    if (!cuda && strcmp(spec->run_precision, "tf32") == 0)
        return err_field(err, ERR_INPUT, "run.precision", "run.precision: tf32 needs a GPU, but %s", note);
    return choose(&spec->run_device, cuda ? "cuda" : "cpu", err);
}

/* run.device is decided already. */
static int choose_precision(struct jobspec *spec, const struct device_node *n, char note[DEVICE_TEXT], struct err *err)
{
    bool cuda = strcmp(spec->run_device, "cuda") == 0;
    bool unit = n->bf16_unit && strcmp(spec->run_isa, "auto") == 0; /* a CPU build chosen by run.isa does not use it */
    size_t used = strlen(note);

    if (strcmp(spec->run_precision, "auto") != 0)
        return 0;
    snprintf(note + used, DEVICE_TEXT - used, "%srun.precision auto: %s", used > 0 ? "; " : "",
             cuda           ? "bf16 on GPUs"
             : unit         ? "bf16, for which the CPU has a unit (AMX)"
             : n->bf16_unit ? "fp32, as the build that run.isa names does not use the CPU's unit for bf16 (AMX)"
                            : "fp32, as the CPU has no unit for bf16 (AMX)");
    return choose(&spec->run_precision, cuda || unit ? "bf16" : "fp32", err);
}

static int resolve_device(struct jobspec *spec, const struct device_node *n, char note[DEVICE_TEXT], struct err *err)
{
    struct sched_job job = { .cuda = true, .ranks = (int)spec->run_ranks, .ranks_per_gpu = (int)spec->run_ranks_per_gpu };
    int need = sched_gpu_need(&job);
    char node[NODE_TEXT];

    if (strcmp(spec->run_device, "auto") == 0)
        return choose_device(spec, need, n, note, err);
    if (strcmp(spec->run_device, "cuda") != 0)
        return 0;
    if (!n->plugin)
        return err_field(err, ERR_INPUT, "run.device", "run.device: cuda needs libdetd-cuda.so beside detd, which is not there");
    tell_node(n, node, sizeof node);
    if (need > n->gpus.devices)
        return err_field(err, ERR_INPUT, n->gpus.devices ? "run.ranks" : "run.device", "%s: asks for %d GPUs, %s",
                         n->gpus.devices ? "run.ranks" : "run.device", need, node);
    if (need > JOB_GPUS_MAX)
        return err_field(err, ERR_INPUT, "run.ranks", "run.ranks: asks for %d GPUs, a job has at most %d", need, JOB_GPUS_MAX);
    return 0;
}

/* A program needs no plugin of ours. */
static int resolve_program(struct jobspec *spec, const struct device_node *n, char note[DEVICE_TEXT], struct err *err)
{
    char node[NODE_TEXT];

    tell_node(n, node, sizeof node);
    if (spec->program_gpus < 0) {
        spec->program_gpus = n->gpus.devices > 0 ? spec->run_ranks : 0;
        snprintf(note, DEVICE_TEXT, "program.gpus: %lld by default: %s", (long long)spec->program_gpus, node);
    }
    if (spec->program_gpus > n->gpus.devices)
        return err_field(err, ERR_INPUT, "program.gpus", "program.gpus: asks for %lld GPUs, %s", (long long)spec->program_gpus, node);
    if (spec->program_gpus > JOB_GPUS_MAX)
        return err_field(err, ERR_INPUT, "program.gpus", "program.gpus: asks for %lld GPUs, a job has at most %d",
                         (long long)spec->program_gpus, JOB_GPUS_MAX);
    return choose(&spec->run_device, spec->program_gpus > 0 ? "cuda" : "cpu", err);
}

int device_resolve(struct jobspec *spec, const struct device_node *n, char note[DEVICE_TEXT], struct err *err)
{
    int rc;

    note[0] = '\0';
    if (jobspec_is_program(spec))
        return resolve_program(spec, n, note, err);
    rc = resolve_device(spec, n, note, err);
    return rc < 0 ? rc : choose_precision(spec, n, note, err);
}
