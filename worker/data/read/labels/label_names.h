/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/labels/label_names.h - the names of a data set's classes
 * by number, and their numbers by name. */
#pragma once
#include <stdint.h>

#include "worker/data/set/idmap.h"
#include "worker/data/text/text_lines.h"

struct err;

enum { LABEL_NAME_MAX = 255 }; /* bytes */

/* All zero is empty. */
struct label_names {
    char **name;
    int n;
    size_t room;
    struct idmap by_name; /* of the name's hash, or the next number that was free */
};

void label_names_free(struct label_names *names);
/* Number of a name, or -1. */
int label_names_find(const struct label_names *names, const char *name);
/* Adds a name if it is new. Returns its number; -ENOMEM; or ERR_DATA if there are too many. path: for messages. */
int label_names_add(struct label_names *names, const char *path, const char *name, struct err *err);
/* Adds a new name from a line of a file: ERR_DATA names it if it is empty, too long or a repetition. */
int label_names_add_line(struct label_names *names, const char *path, const struct text_line *line, struct err *err);
/* Sorts by their bytes. ret_place: [n], the new number of each. 0 or -ENOMEM. */
int label_names_sort(struct label_names *names, int32_t *ret_place);
/* Adds all names of a file, one a line. ERR_DATA or -ENOMEM. */
int label_names_parse(struct label_names *names, const char *path, const void *bytes, size_t size, struct err *err);
