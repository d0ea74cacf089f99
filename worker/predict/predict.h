/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/predict.h - runs `detctl predict`: a job's checkpoint on
 * some pictures. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct err;
struct model_registry;

struct predict_options {
    const struct model_registry *models;
    const char *job_dir, *out_dir;
    const char *checkpoint; /* see choice_make() */
    double conf;            /* lowest score to draw */
    /* lowest score to write; NAN: conf for pictures given by name, the job's val.conf for a data set */
    double results_conf;
    const char *on; /* a data set to take the pictures from */
    /* its, like in data.val; NULL: the job's if the form is the job's, and data_format() of its file */
    const char *images, *format;
    const char *split; /* "train" or "val": the job's own split; NULL: not a split of the job */
    bool no_pictures;  /* no picture is drawn */
    bool quiet;        /* no line for each picture */
    bool enlarge;      /* small pictures are drawn enlarged, so that letters can be read */
    FILE *list;        /* of names, for the picture "-" */
};

/* A network for depth writes a picture's depth to out_dir (worker/predict/depth.h). Other networks: draws the
 * detections of each picture into out_dir (names: worker/predict/outputs.h) and writes all of them to
 * out_dir/results.json in COCO form, and masks, if the model finds them, to out_dir/results_segm.json. args[nargs]: see
 * asked_by_name(); must be empty with `on` or `split`. A depth network also takes a folder with intrinsics.json instead
 * of pictures (worker/predict/way.h). Its frames are the pictures. Each but the last also gets a picture of the next
 * one as its own camera would see it, NAME_next.png. The way goes to the files of outputs.h.
 * Prints a line per picture. Unreadable pictures are reported and left out; the call then ends with ERR_DATA. Without a
 * checkpoint out_dir is not made. */
int predict_run(const struct predict_options *opt, char *const *args, int nargs, FILE *out, struct err *err);
/* Writes the weights of the checkpoint to the file `path`. form: "weights", darknet's, with a .cfg beside it;
 * "safetensors", in the names of the reference implementation; or .safetensors in the names and shapes of another
 * program that the model's family knows. Only models, job_dir and checkpoint of opt are read. ERR_INPUT: the family
 * knows no such form. */
int predict_export(const struct predict_options *opt, const char *form, const char *path, FILE *out, struct err *err);
