/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/predict.h - what `detctl predict` runs: a job's checkpoint on some pictures. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct err;
struct model_registry;

struct predict_options {
    const struct model_registry *models;
    const char *job_dir, *out_dir;
    const char *checkpoint;      /* as choice_make() */
    double conf;                 /* lowest score to draw */
    double results_conf;         /* lowest score to write; NAN: as conf of pictures given by name, of a data set as the job's val.conf */
    const char *on;              /* a data set whose pictures are looked at */
    const char *images, *format; /* its, as data.val has them; NULL: the job's where the form is its own, and by its file, data_format() */
    const char *split;           /* "train" or "val": the job's own; NULL: neither */
    bool no_pictures;            /* none is drawn */
    bool quiet;                  /* no line for each picture */
    bool enlarge;                /* small ones are drawn enlarged, so that letters can be read */
    FILE *list;                  /* of names, for the picture "-" */
};

/* Of a network that says depth, a picture's depth goes to out_dir (worker/predict/depth.h). Of others: draws the detections of each picture into out_dir (names: worker/predict/outputs.h) and writes
 * all of them to out_dir/results.json in COCO form; masks, where the model finds them, to out_dir/results_segm.json. args[nargs]: as asked_by_name(); none with `on` or `split`. Of a depth network
 * one folder with intrinsics.json may be given instead of pictures (worker/predict/way.h): its frames are the pictures, each but the last also has a picture of the next one as its own camera would
 * see it, NAME_next.png, and the way goes to the files of outputs.h.
 * Prints a line per picture. Those that cannot be read are told and left out; ERR_DATA at the end when there was one. Where there is no
 * checkpoint out_dir is not made. */
int predict_run(const struct predict_options *opt, char *const *args, int nargs, FILE *out, struct err *err);
/* Writes the weights of the checkpoint to the file `path`. form: "weights", darknet's, with a .cfg beside it; "safetensors", in the names of the
 * reference implementation; or .safetensors in the names and shapes of another program, one that the model's family knows.
 * Of opt only models, job_dir and checkpoint are read. ERR_INPUT: the family knows none of that name. */
int predict_export(const struct predict_options *opt, const char *form, const char *path, FILE *out, struct err *err);
