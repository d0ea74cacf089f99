/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/labels/data_yaml.h - the data.yaml of ultralytics'
 * programs: the places of the pictures of each split, and the names of their classes. Other keys are reported as notes.
 * Strict and bounded: anchors and aliases, several documents and repeated keys are errors with a line. */
#pragma once
#include "worker/data/read/labels/label_names.h"

struct err;
struct problems;

enum { YAML_MAX_BYTES = 16 << 20, YAML_MAX_DEPTH = 32, YAML_MAX_PATHS = 1024, YAML_MAX_POINTS = 1000 };

struct data_yaml {
    char *root;                 /* "path"; NULL: not there */
    char *path[YAML_MAX_PATHS]; /* of the split: folders or lists, in order */
    int npaths;
    struct label_names names; /* "names", a list or numbers 0, 1, ... and names; empty: not there */
    int64_t nc;               /* -1: not there */
    /* numbers of key points after each box, K x D of "kpt_shape: [K, D]"; 0: it is null; -1: not there */
    int points;
};

/* split: "train" or "val"; the file may say "validation" for the latter. Without "names" there are "nc" names, class_0
 * and so on. The caller must zero ret before, and free it with data_yaml_free() in every case. ERR_DATA with file and
 * line, or -ENOMEM. */
int data_yaml_parse(const char *name, const void *bytes, size_t size, const char *split, struct data_yaml *ret, struct problems *problems,
                    struct err *err);
void data_yaml_free(struct data_yaml *y);
