/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobspec_program.c - rules for a job that is a program. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/host/limits.h"
#include "proto/job/jobspec_table.h"

static int check_gpus(const struct jobspec *s, struct err *err)
{
    if (s->run_ranks_per_gpu > 1)
        return job_error(err, "run.ranks_per_gpu", "not a key of a program: each rank sees all GPUs of the job (program.gpus)");
    if (s->program_gpus > 0 && s->program_gpus % s->run_ranks != 0)
        return job_error(err, "program.gpus", "must be a multiple of run.ranks (%lld), is %lld", (long long)s->run_ranks,
                         (long long)s->program_gpus);
    return 0;
}

static int check_process(const struct jobspec *s, struct err *err)
{
    const char *mask = s->program_umask, *limit = limits_unknown(s->program_limits);

    if (limit)
        return job_error(err, "program.limits", "'%.80s' is no resource limit", limit);
    if (mask && (mask[strspn(mask, "01234567")] || strtol(mask, NULL, 8) > 0777))
        return job_error(err, "program.umask", "must be octal digits from 0 to 0777, is '%s'", mask);
    return 0;
}

int jobspec_finish_program(struct jobspec *s, struct err *err)
{
    int rc = check_gpus(s, err);

    if (rc == 0 && s->program_terminal && s->run_ranks > 1)
        rc = job_error(err, "program.terminal", "needs run.ranks=1: one process has the terminal");
    if (rc == 0 && !json_string_length(json_array_get(s->program_command, 0)))
        rc = job_error(err, "program.command", "the name of the program is empty");
    if (rc == 0 && !s->program_directory)
        rc = job_error(err, "program.directory", "is required (the working folder of the program)");
    if (rc == 0)
        rc = check_process(s, err);
    s->train_steps = s->program_steps > 0 ? s->program_steps : 0;
    s->checkpoint_every = s->checkpoint_every > 0 ? s->checkpoint_every : 0;
    if (rc < 0 || s->run_deterministic)
        return rc;
    s->run_deterministic = strdup("off");
    return s->run_deterministic ? 0 : err_set(err, -ENOMEM, "out of memory");
}
