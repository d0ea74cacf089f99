/* worker/predict/predict.h - what `detctl predict` runs: a job's checkpoint on some pictures. */
#pragma once
#include <stdio.h>

struct err;
struct model_registry;

struct predict_options {
    const struct model_registry *models;
    const char *job_dir, *out_dir;
    const char *checkpoint; /* a step, "best" (by validation loss; the newest where there was no validation) or "last" */
    double conf;            /* lowest score to draw and write */
};

/* Of a network that says depth, a picture's depth goes to out_dir (worker/predict/depth.h). Of others: draws the detections of each image into out_dir (names: worker/predict/outputs.h) and writes all of them to out_dir/results.json in COCO form, image_id counting
 * the arguments from 1; masks, where the model finds them, to out_dir/results_segm.json. Of such a network one folder with intrinsics.json may be given instead of pictures (worker/predict/way.h): its frames
 * are the pictures, each but the last also has a picture of the next one as its own camera would see it, NAME_next.png, and the way goes to the files of outputs.h.
 * Prints a line per image. Images that cannot be read are told and left out; ERR_DATA at the end when there was one. Where there is no
 * checkpoint out_dir is not made. */
int predict_run(const struct predict_options *opt, char *const *images, int nimages, FILE *out, struct err *err);
/* Writes the weights of the checkpoint to the file `path`, .safetensors, in the names and shapes of another program, one that the model's family knows.
 * conf and out_dir are not read. ERR_INPUT: the family knows none of that name. */
int predict_export(const struct predict_options *opt, const char *dialect, const char *path, FILE *out, struct err *err);
