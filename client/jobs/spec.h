/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/spec.h - a job file in the form that detd accepts: found,
 * overridden and checked, with absolute paths that exist. */
#pragma once
#include <jansson.h>
#include <limits.h>

struct context;
struct err;

/* Finds the absolute name of the job file `file`, or file.json if there is no such file. */
int spec_find(const char *file, char ret_path[PATH_MAX], struct err *err);
/* Reads the object in `file` (or file.json if there is no such file) without changes; a new reference. */
int spec_read(const char *file, json_t **ret_root, struct err *err);
/* Reads `file` (or file.json if there is no such file) and applies `count` assignments. Paths are relative to the file;
 * those of assignments are relative to the working folder of detctl. Checks as the user everything that needs no detd:
 * keys, and that each path can be opened. Converts train.epochs into train.steps, with a line on stderr. Replaces
 * job:12 in place of weights by the path of that job's weights, for which it asks detd. 0 with *ret_spec, the object to
 * send, a new reference; or an exit code after complaining. */
int spec_load(struct context *ctx, const char *file, char *const *assignments, int count, json_t **ret_spec);
/* The same for an object with absolute paths, called `name` in errors. */
int spec_change(struct context *ctx, const json_t *spec, const char *name, char *const *assignments, int count, json_t **ret_spec);
/* Applies assignments, nothing more. */
int spec_assign(json_t *root, char *const *assignments, int count, struct err *err);
/* The object `name` of root, borrowed; makes it if it is missing. */
json_t *spec_group(json_t *root, const char *name);
/* Drops from the job's run its start conditions, time limit and priority, and the people to tell. */
void spec_drop_wishes(json_t *run);
/* The same checks for an object with absolute paths and counted steps. Errors about its keys begin with name. */
int spec_check(const json_t *root, const char *name, struct err *err);
/* Writes the object to a file for detd-worker, in the folder for temporary files. The caller unlinks it. */
int spec_file(const json_t *spec, char ret_path[PATH_MAX], struct err *err);
