/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/cpu.c - opening and closing the CPU device, and its table of
 * ops. */
#include "worker/cpu/cpu.h"

#include "worker/cpu/tile_amx.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/version.h"

/* The makefile compiles this file once for each ISA, with an own name for the symbol. */
static int isa_supported(void)
{
#if defined(__AVX512F__)
    return __builtin_cpu_supports("x86-64-v4");
#elif defined(__AVX2__)
    return __builtin_cpu_supports("x86-64-v3");
#else
    return 1;
#endif
}

static int threads_allowed(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) < 0 || CPU_COUNT(&set) < 1)
        return 1;
    return CPU_COUNT(&set);
}

/* ---- the tables of ops ---- */

#define ROW(family, name, params, args) .name = cpu_##family##_##name,
#define TABLE(family, LIST)             static const struct family##_ops family##_table = { LIST(ROW) };
FAMILIES_OF_ALL(TABLE)
FAMILIES_OF_CPU(TABLE)
#undef TABLE
#undef ROW

#define FAMILY(family, LIST) .family = &family##_table,
static const struct families cpu_families = { FAMILIES_OF_ALL(FAMILY) FAMILIES_OF_CPU(FAMILY) };
#undef FAMILY

/* ---- opening ---- */

int cpu_available(struct err *err)
{
    return isa_supported() ? 0 : err_set(err, ERR_UNSUPPORTED, "this CPU cannot run the %s build", ISA_NAME);
}

/* Chooses the unit that multiplies bf16. A job that names an ISA gets that build without AMX. */
static void choose_tiles(struct cpu_device *d, const char *isa)
{
    char why[160];

    d->tiles = &tile_plain;
    if (d->dev.dtype != DTYPE_BF16)
        return;
    if (amx_ready(why, sizeof why)) {
        if (!isa || strcmp(isa, "auto") == 0) {
            d->tiles = &tile_amx;
            return;
        }
        snprintf(why, sizeof why, "run.isa asks for %.20s, which does not use its unit for bf16 (AMX)", isa);
    }
    snprintf(d->note, sizeof d->note, "run.precision bf16: slower than fp32 on this CPU, as %s; the bits are the same everywhere", why);
    d->dev.note = d->note;
}

/* Never inlined: a sanitizer marks variables with instructions of this build, and the caller first checks that the CPU
 * has them. */
__attribute__((noinline)) static int open_available(const struct device_options *opt, struct device **ret_dev, struct err *err)
{
    struct cpu_device *d = calloc(1, sizeof *d);
    int rc;

    if (!d)
        return err_set(err, -ENOMEM, "out of memory: CPU device");
    rc = threads_new(opt && opt->threads > 0 ? opt->threads : threads_allowed(), &d->threads, err);
    if (rc < 0) {
        free(d);
        return rc;
    }
    d->dev = (struct device){ .ops = detd_backend(), .on = &cpu_families, .host_memory = true, .pending = true, .pooled_grads = true };
    d->dev.dtype = opt && opt->precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32;
    choose_tiles(d, opt ? opt->isa : NULL);
    *ret_dev = &d->dev;
    return 0;
}

int cpu_open(int index, const struct device_options *opt, struct device **ret_dev, struct err *err)
{
    int rc;

    if (index != 0)
        return err_set(err, ERR_NOTFOUND, "there is one CPU device, number 0; %d was asked for", index);
    if (opt && opt->precision == PRECISION_TF32)
        return err_set(err, ERR_UNSUPPORTED, "the CPU device computes in fp32 or bf16, not in tf32");
    rc = cpu_available(err);
    return rc < 0 ? rc : open_available(opt, ret_dev, err);
}

void cpu_close(struct device *dev)
{
    if (!dev)
        return;
    threads_free(cpu_device(dev)->threads);
    free(cpu_device(dev)->scratch);
    free(cpu_device(dev)->wide);
    free(dev);
}

/* The name of the CPU's model in /proc/cpuinfo. */
static void processor_name(char *ret, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(ret, size, "CPU");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');

        if (colon && strncmp(line, "model name", 10) == 0) {
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(ret, size, "%s", colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

void cpu_info(struct device *dev, struct device_info *ret)
{
    memset(ret, 0, sizeof *ret);
    processor_name(ret->name, sizeof ret->name);
    ret->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    ret->devices = 1;
    ret->nversions = 1;
    snprintf(ret->version[0].name, sizeof ret->version[0].name, "isa");
    snprintf(ret->version[0].value, sizeof ret->version[0].value, "%s%s", ISA_NAME, cpu_device(dev)->tiles == &tile_amx ? " amx" : "");
}

/* All tiers run the same code. */
void cpu_set_tier(struct device *dev, enum tier tier)
{
    (void)dev, (void)tier;
}

int cpu_sync(struct device *dev, struct err *err)
{
    (void)dev, (void)err;
    return 0;
}

/* Every op is done when it returns, so all share one mark that is always passed. */
struct device_mark {
    char passed;
};

struct device_mark *cpu_mark_new(struct device *dev)
{
    static struct device_mark passed;

    (void)dev;
    return &passed;
}

void cpu_mark_free(struct device *dev, struct device_mark *m)
{
    (void)dev, (void)m;
}

int cpu_mark(struct device *dev, struct device_mark *m, struct err *err)
{
    (void)dev, (void)m, (void)err;
    return 0;
}

int cpu_wait(struct device *dev, struct device_mark *m, struct err *err)
{
    return cpu_mark(dev, m, err);
}

int cpu_reach(struct device *dev, struct device_mark *m, struct err *err)
{
    return cpu_mark(dev, m, err);
}

const struct device_ops *detd_backend(void)
{
#define X(row) .row = cpu_##row,
    static const struct device_ops ops = { .name = "cpu-" ISA_NAME, .version = DETD_VERSION, CPU_MACHINE(X) };
#undef X

    return &ops;
}
