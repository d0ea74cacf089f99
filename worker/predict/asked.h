/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/asked.h - the pictures that predict is asked to look at: given by name, or those of a data set. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct check_options;
struct dataset;
struct err;
struct network;

struct asked_picture {
    char *path;  /* to be read */
    char *name;  /* file_name of its records: as it was given; of a set, as it stands there */
    char *place; /* of what is written about it, below a folder: its path without the folder that it has in common with all others */
    int64_t id;  /* image_id: from 1 in the order given; of a set, its own */
    int w, h;    /* as the set says; 0: nothing is known */
    bool folder; /* it is a folder without pictures */
};

struct asked {
    int n;
    struct asked_picture *picture; /* [n] */
    bool of_set, upright;          /* upright: pictures are turned as their EXIF orientation says */
    int64_t *category;             /* [classes of the network]: category_id, ASKED_NONE where the set has no such category */
};
#define ASKED_NONE INT64_MIN

enum { ASKED_MAX = 1 << 24 };

/* args[nargs]: pictures; folders, of which all that ends as a picture's name does is taken, with what lies below, but nothing hidden, no link to a folder, and not
 * the folder out_dir; patterns as the shell has them (* ? [ ]) where there is no such file; and "-": names from `list`, one a line. Each folder's are in
 * the order of their bytes. What is not there is kept: who reads it says so. ERR_INPUT: no picture is left, or a line of the list is no name. Caller frees. */
int asked_by_name(char *const *args, int nargs, FILE *list, const char *out_dir, const struct network *net, struct asked **ret,
                  struct err *err);
/* Each path is one picture, whatever is there, as stored: not upright. Caller frees. */
int asked_of_files(char *const *paths, int n, const struct network *net, struct asked **ret, struct err *err);
/* The pictures of a set, which needs no annotations; categories are those of its names. ERR_INPUT: it has none of the network's classes. What it lacks, and how many
 * of its records are bad, goes to out. */
int asked_of_file(const struct check_options *set, const struct network *net, FILE *out, struct asked **ret, struct err *err);
/* Those of a checked data set with the network's classes; of frames the targets. */
int asked_of_set(const struct dataset *set, const struct network *net, struct asked **ret, struct err *err);
void asked_free(struct asked *a);
