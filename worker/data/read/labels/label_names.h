/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/labels/label_names.h - the names of a data set's classes by number, and their numbers by name. */
#pragma once
#include <stdint.h>

#include "worker/data/set/idmap.h"
#include "worker/data/text/text_lines.h"

struct err;

enum { LABEL_NAME_MAX = 255 }; /* bytes */

/* Zeroed is empty. */
struct label_names {
    char **name;
    int n;
    size_t room;
    struct idmap by_name; /* of the name's hash, or the next number that was free */
};

void label_names_free(struct label_names *names);
/* Number of a name, or -1. */
int label_names_find(const struct label_names *names, const char *name);
/* Its number, new or old; -ENOMEM; or ERR_DATA where there are too many. path: for messages. */
int label_names_add(struct label_names *names, const char *path, const char *name, struct err *err);
/* A new one, of a line of a file: ERR_DATA names it where it is empty, too long or there twice. */
int label_names_add_line(struct label_names *names, const char *path, const struct text_line *line, struct err *err);
/* In the order of their bytes. ret_place: [n], the new number of each. 0 or -ENOMEM. */
int label_names_sort(struct label_names *names, int32_t *ret_place);
/* All of a file, a name a line. ERR_DATA or -ENOMEM. */
int label_names_parse(struct label_names *names, const char *path, const void *bytes, size_t size, struct err *err);
