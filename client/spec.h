/* client/spec.h - a job file as the user means it: found, overridden, checked, its paths absolute and seen to exist. */
#pragma once
#include <jansson.h>

struct err;

/* Reads `file` (or file.json where no such file is) and applies `count` assignments. Paths are relative to the file,
 * in assignments too. Everything that can be said without detd is checked as the user: keys, and that each path opens.
 * *ret_spec: the object as it is sent, a new reference. */
int spec_load(const char *file, char *const *assignments, int count, json_t **ret_spec, struct err *err);
