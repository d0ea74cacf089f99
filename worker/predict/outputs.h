/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/outputs.h - names for predict's outputs in a user's folder,
 * where only outputs of an earlier predict may be replaced. */
#pragma once

struct asked;
struct err;
struct outputs;

/* The files of results: of boxes (results.json) and of masks (results_segm.json); of a camera's way (trajectory.txt,
 * trajectory_kitti.txt; eval/trajectory.h). */
enum outputs_file { OUTPUTS_BOXES, OUTPUTS_MASKS, OUTPUTS_TUM, OUTPUTS_KITTI, OUTPUTS_FILES };

/* Makes the folder if it is missing. inputs are the given pictures: they are never written to, through any link or
 * name. ERR_INPUT: a file of results in the folder, of boxes or masks, is an input, or not predict's. Caller frees. */
int outputs_open(const char *dir, const struct asked *inputs, struct outputs **ret_out, struct err *err);
void outputs_close(struct outputs *o);
/* Path of a file of results, checked again: much time may have passed since outputs_open(). ERR_INPUT like there.
 * Borrowed. */
int outputs_results(const struct outputs *o, enum outputs_file file, const char **ret_path, struct err *err);
/* DIR/FOLDER/STEMsuffix.png for the place FOLDER/STEM.ext (asked.h); makes its folders. -2.png and so on if that is a
 * file that may not be replaced, or was given away before. Borrowed until the next call. */
int outputs_picture(struct outputs *o, const char *place, const char *suffix, const char **ret_path, struct err *err);
/* Removes the output of an earlier predict under the first of these names, unless it was given away since. */
void outputs_forget(struct outputs *o, const char *place, const char *suffix);
