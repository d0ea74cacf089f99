#include "worker/train/machine.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/comm/comm.h"
#include "worker/comm/staged.h"
#include "worker/core/device.h"
#include "worker/report/progress.h"
#include "worker/report/report.h"
#include "worker/train/trainer.h"

/* A rank that waits for another rank also waits for that rank's files, so this is long. detd-job finds hangs, by the
 * progress pages. */
enum { COMM_TIMEOUT_MS = 4 * 3600 * 1000 };

_Static_assert((int)CHANNEL_GRAD == COMM_GRAD && (int)CHANNEL_SYNC == COMM_SYNC && (int)CHANNEL_COUNT == COMM_CHANNELS, "channels");

/* A link beside the comm numbers its own operations. The progress page counts the operations of a channel's thread on
 * both. */
static void on_collective(void *arg, int channel, uint32_t number, uint64_t fingerprint)
{
    struct machine *m = arg;

    progress_collective(m->progress, (enum progress_channel)channel, fingerprint);
    if (m->stress)
        stress_arrive(m->stress, channel, number);
}

static void on_wait(void *arg, bool waiting)
{
    struct machine *m = arg;

    progress_phase(m->progress, waiting ? PHASE_REPORT_WAIT : PHASE_OPTIMIZER);
}

/* Ranks with whole GPUs of their own meet through the backend's link. NCCL counts slices of one GPU as that GPU twice
 * and refuses. Tests of NCCL with several ranks on one GPU set DETD_TEST_SHARED_LINK in the environment to get the link
 * too; NCCL allows that since 2.30 with NCCL_MULTI_RANK_GPU_ENABLE=1. */
static bool wants_link(const struct machine *m, const struct device_info *info)
{
    bool alone = m->spec->run_ranks_per_gpu == 1 && strncmp(info->uuid, "MIG-", 4) != 0;

    return m->opt->backend->link_open && m->opt->nranks > 1 && (alone || getenv("DETD_TEST_SHARED_LINK"));
}

static int say_hello(struct machine *m, struct err *err)
{
    char id[REPORT_ID] = "";
    const char *versions[2 * DEVICE_MAX_VERSIONS + 1] = { NULL };
    struct report_device said;
    struct device_info info;
    int rc = 0;

    m->dev->ops->info(m->dev, &info);
    if (m->opt->rank == 0 && wants_link(m, &info))
        rc = m->opt->backend->link_id(id, sizeof id, err); /* no id from rank 0: all ranks meet in shared memory */
    if (rc < 0)
        return rc;
    for (int i = 0; i < info.nversions; i++) {
        versions[2 * i] = info.version[i].name;
        versions[2 * i + 1] = info.version[i].value;
    }
    said = (struct report_device){ .name = m->dev->host_memory ? m->opt->backend->name : info.name,
                                   .uuid = info.uuid[0] ? info.uuid : NULL,
                                   .devices = info.devices,
                                   .memory_bytes = info.memory_bytes,
                                   .versions = versions };
    return report_hello(m->report, &said, id[0] ? id : NULL, err);
}

static int greet(struct machine *m, struct report_go *ret_go, struct err *err)
{
    int rc = say_hello(m, err);

    progress_phase(m->progress, PHASE_WAIT_GO);
    if (rc >= 0)
        rc = report_wait_go(m->report, ret_go, err);
    if (rc >= 0 && m->opt->why_cpu && m->opt->rank == 0)
        rc = report_event(m->report, err, "info", "device", "run.device auto: the CPU is used: %s", m->opt->why_cpu);
    if (rc >= 0 && m->dev->note && m->opt->rank == 0)
        rc = report_event(m->report, err, "info", "device", "%s", m->dev->note);
    return rc;
}

static int open_link(struct machine *m, struct comm_options *opt, const char *id, struct err *err)
{
    opt->host = m->comm;
    if (m->dev->host_memory) {
        m->link = m->comm;
        return 0;
    }
    if (id[0])
        return m->opt->backend->link_open(m->dev, m->side, opt, id, &m->link, err);
    return comm_open_staged(m->comm, m->dev, m->side, &m->link, err);
}

static enum precision precision_of(const char *name)
{
    return strcmp(name, "bf16") == 0 ? PRECISION_BF16 : strcmp(name, "tf32") == 0 ? PRECISION_TF32 : PRECISION_FP32;
}

static int open_devices(struct machine *m, struct err *err)
{
    struct device_options opt = { m->spec->run_threads > 0 ? (int)m->spec->run_threads : 0, m->spec->run_isa,
                                  precision_of(m->spec->run_precision) };
    int rc = m->opt->backend->open(0, &opt, &m->dev, err);

    opt.threads = 1;
    if (rc >= 0)
        rc = m->opt->backend->open(0, &opt, &m->side, err);
    if (rc >= 0)
        rc = m->opt->backend->open(0, &opt, &m->carrier, err);
    return rc;
}

int machine_open(struct machine *m, const struct jobspec *spec, const struct trainer_options *opt, struct report_go *ret_go,
                 struct err *err)
{
    struct comm_options comm = { opt->comm_fd, opt->rank, opt->nranks, COMM_TIMEOUT_MS, { on_collective, m }, NULL };
    int rc = progress_open(opt->progress_fd, &m->progress, err);

    m->spec = spec;
    m->opt = opt;
    if (spec->run_stress >= 0) {
        m->forced = (struct stress){ (uint64_t)spec->run_stress, opt->rank, opt->nranks };
        m->stress = &m->forced;
    }
    if (rc >= 0)
        rc = report_open(opt->control_fd, opt->rank, opt->local_rank, opt->nranks, &m->report, err);
    if (rc < 0)
        return rc;
    report_on_wait(m->report, on_wait, m);
    rc = open_devices(m, err);
    if (rc >= 0)
        rc = greet(m, ret_go, err);
    if (rc >= 0)
        rc = comm_open_shm(&comm, &m->comm, err);
    return rc < 0 ? rc : open_link(m, &comm, ret_go->nccl_id, err);
}

void machine_close(struct machine *m)
{
    if (m->link != m->comm)
        comm_close(m->link);
    comm_close(m->comm);
    if (m->carrier)
        m->carrier->ops->close(m->carrier);
    if (m->side)
        m->side->ops->close(m->side);
    if (m->dev)
        m->dev->ops->close(m->dev);
    report_close(m->report);
    progress_close(m->progress);
}
