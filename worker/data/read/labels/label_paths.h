/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/labels/label_paths.h - paths of pictures and of what belongs to them. Of text alone, but for label_path(), which looks for links, and
 * label_paths_scan(), which lists a folder. */
#pragma once
#include <stdbool.h>

#include "worker/data/set/dataset.h"

struct err;

/* folder/path, or path where it is absolute, without "." and doubled slashes, and without ".." but behind a link: the system resolves that one. False: over
 * DATASET_MAX_PATH. */
bool label_path(const char *folder, const char *path, char ret[DATASET_MAX_PATH]);
/* The folder that a path lies in: "." of a name alone. */
void label_path_folder(const char *path, char ret[DATASET_MAX_PATH]);
/* Name without folder and ending. */
void label_path_stem(const char *path, char ret[DATASET_MAX_PATH]);
/* Where the labels of a picture are by the rule of darknet and its heirs: its last folder called images or JPEGImages is labels there, and its ending .txt.
 * False: it has no such folder, or the path becomes too long. */
bool label_path_rule(const char *picture, char ret[DATASET_MAX_PATH]);
/* Beside the picture. */
bool label_path_beside(const char *picture, char ret[DATASET_MAX_PATH]);
/* How far both paths go through the same folders: bytes of that folder's path, without the slash at its end. */
int label_path_common(const char *a, int folder, const char *b);

/* What found makes of one name: 0, or an error, which ends the scan. */
typedef int label_found_fn(void *arg, const char *path, struct err *err);
/* Files below a folder whose path is_wanted, in the order of the bytes of their paths; hidden ones, whose name begins with a dot, are not looked at.
 * inside: folders in it, too. ERR_DATA, -errno or what found gave. */
int label_paths_scan(const char *folder, bool inside, bool (*is_wanted)(const char *path), label_found_fn *found, void *arg,
                     struct err *err);
