/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/labels/label_paths.h - paths of pictures and of their
 * files. Works on text alone, except label_path(), which looks for links, and label_paths_scan(), which lists a
 * folder. */
#pragma once
#include <stdbool.h>

#include "worker/data/set/dataset.h"

struct err;

/* folder/path, or path if it is absolute, without "." and doubled slashes. ".." is removed too, except behind a link:
 * the system resolves that one. False: over DATASET_MAX_PATH. */
bool label_path(const char *folder, const char *path, char ret[DATASET_MAX_PATH]);
/* The folder that a path lies in: "." for a name alone. */
void label_path_folder(const char *path, char ret[DATASET_MAX_PATH]);
/* Name without folder and ending. */
void label_path_stem(const char *path, char ret[DATASET_MAX_PATH]);
/* The path of a picture's labels by the rule of darknet and its heirs: its last folder called images or JPEGImages
 * becomes labels, and its ending becomes .txt. False: it has no such folder, or the path becomes too long. */
bool label_path_rule(const char *picture, char ret[DATASET_MAX_PATH]);
/* The path of labels beside the picture. */
bool label_path_beside(const char *picture, char ret[DATASET_MAX_PATH]);
/* The last folder that both paths go through: bytes of that folder's path, without the slash at its end. */
int label_path_common(const char *a, int folder, const char *b);

/* Called for each name found: returns 0, or an error, which ends the scan. */
typedef int label_found_fn(void *arg, const char *path, struct err *err);
/* Calls found for files below a folder with a path that is_wanted, in the order of the bytes of their paths. Hidden
 * files, with names that begin with a dot, are ignored. inside: folders in it, too. ERR_DATA, -errno or the error of
 * found. */
int label_paths_scan(const char *folder, bool inside, bool (*is_wanted)(const char *path), label_found_fn *found, void *arg,
                     struct err *err);
