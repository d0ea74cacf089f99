/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/spec.h - a job file as the user means it: found, overridden, checked, its paths absolute and seen to exist. */
#pragma once
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

struct context;
struct err;

/* The object in `file` (or file.json where no such file is) as it stands, a new reference. */
int spec_read(const char *file, json_t **ret_root, struct err *err);
/* Reads `file` (or file.json where no such file is) and applies `count` assignments. Paths are relative to the file, those of assignments to the folder in
 * which detctl runs. Everything that can be said without detd is checked as the user: keys, and that each path opens. train.epochs becomes
 * train.steps, which is said on stderr; job:12 in place of weights becomes the path of that job's, for which detd is asked.
 * 0 with *ret_spec, the object as it is sent, a new reference; or an exit code after complaining. */
int spec_load(struct context *ctx, const char *file, char *const *assignments, int count, json_t **ret_spec);
/* The same of an object whose paths are absolute, called `name` in errors. */
int spec_change(struct context *ctx, const json_t *spec, const char *name, char *const *assignments, int count, json_t **ret_spec);
/* Applies assignments, nothing more. */
int spec_assign(json_t *root, char *const *assignments, int count, struct err *err);
/* The object `name` of root, borrowed, made where there is none. */
json_t *spec_group(json_t *root, const char *name);
/* Drops from the run of a job when it was to run, for how long, and who was to hear of it. */
void spec_drop_wishes(json_t *run);
/* The same checks of an object whose paths are absolute and whose steps are given; name stands before what is said of its keys. */
int spec_check(const json_t *root, const char *name, struct err *err);
/* The caller is root, and a file or folder with data or weights is another user's: *ret says whose the first one is. */
bool spec_is_of_another(const json_t *spec, struct stat *ret);
/* The object of a job file, as assignments change it, a new reference, where spec_is_of_another(); NULL where it is not, or cannot be read. */
json_t *spec_of_another(const char *file, char *const *assignments, int count, struct stat *ret);
/* That object as a file for detd-worker, in the folder for temporary ones; where spec_is_of_another(), it is that user's. The caller unlinks it. */
int spec_file(const json_t *spec, char ret_path[PATH_MAX], struct err *err);
