/* worker/datacheck.h - what `detctl check` runs: the job file's model and both splits, looked at as a job would, but trained on by nobody. */
#pragma once
#include <stdio.h>

struct err;
struct jobspec;

/* Prints a line per split and every problem kept. Errors as a job would fail with. */
int datacheck_run(const struct jobspec *spec, FILE *out, struct err *err);
