/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/asked.h - the pictures for predict: given by name, or from a
 * data set. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct check_options;
struct dataset;
struct err;
struct network;

struct asked_picture {
    char *path;  /* path to read */
    char *name;  /* file_name of its records: as given; from a set, the set's name of it */
    char *place; /* name for its outputs, below a folder: its path without the folder that it shares with all others */
    int64_t id;  /* image_id: from 1 in the order given; from a set, its own */
    int w, h;    /* from the set; 0: not known */
    bool folder; /* it is a folder without pictures */
};

struct asked {
    int n;
    struct asked_picture *picture; /* [n] */
    bool of_set, upright;          /* upright: pictures are turned by their EXIF orientation */
    /* [classes of the network]: category_id, ASKED_NONE if the set has no such category */
    int64_t *category;
};
#define ASKED_NONE INT64_MIN

enum { ASKED_MAX = 1 << 24 };

/* args[nargs] may be: pictures; folders, which give all files with a picture's ending, at any depth, but nothing
 * hidden, no link to a folder, and not the folder out_dir; patterns like the shell's (* ? [ ]) if there is no such
 * file; and "-": names from `list`, one a line. Each folder's pictures come in the order of their bytes. Missing
 * pictures are kept: their reader reports them. ERR_INPUT: no picture is left, or a line of the list is not a name.
 * Caller frees. */
int asked_by_name(char *const *args, int nargs, FILE *list, const char *out_dir, const struct network *net, struct asked **ret,
                  struct err *err);
/* Each path is one picture, of any kind, as stored: not upright. Caller frees. */
int asked_of_files(char *const *paths, int n, const struct network *net, struct asked **ret, struct err *err);
/* The pictures of a set, which needs no annotations; categories follow from its names. ERR_INPUT: it has no class of
 * the network. Missing classes, and the number of bad records, are reported to out. */
int asked_of_file(const struct check_options *set, const struct network *net, FILE *out, struct asked **ret, struct err *err);
/* The pictures of a checked data set with the network's classes; for frames the targets. */
int asked_of_set(const struct dataset *set, const struct network *net, struct asked **ret, struct err *err);
void asked_free(struct asked *a);
