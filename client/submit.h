/* client/submit.h - queues a job. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct context;

/* spec is stolen. 0 with *ret_id, or an exit code after complaining. */
int submit_spec(struct context *ctx, json_t *spec, int64_t *ret_id);
/* Of a command that ends in submitted() and takes --wait, --watch and one id, which stays argv[optind]. 0, or an exit code after complaining. */
int take_waiting(struct context *ctx, int argc, char **argv, bool *ret_wait, bool *ret_watch, int64_t *ret_id);
/* Prints the id, then waits without a word or watches, where asked. Returns an exit code. */
int submitted(struct context *ctx, int64_t id, bool wait, bool watch);
