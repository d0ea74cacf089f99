/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/outputs.h - names for what predict writes: in a folder of the user's, where nothing may be lost but the outputs of an earlier predict. */
#pragma once

struct asked;
struct err;
struct outputs;

/* The files of results: of boxes (results.json) and of masks (results_segm.json); of a camera's way (trajectory.txt, trajectory_kitti.txt; eval/trajectory.h). */
enum outputs_file { OUTPUTS_BOXES, OUTPUTS_MASKS, OUTPUTS_TUM, OUTPUTS_KITTI, OUTPUTS_FILES };

/* Makes the folder where it is not there. inputs are the pictures given: none of them is ever written to, whatever link or name leads to it.
 * ERR_INPUT: a file of results in the folder, of boxes or masks, is one of them, or not predict's. Caller frees. */
int outputs_open(const char *dir, const struct asked *inputs, struct outputs **ret_out, struct err *err);
void outputs_close(struct outputs *o);
/* Where the results go, looked at again: much time may have passed since outputs_open(). ERR_INPUT as there. Borrowed. */
int outputs_results(const struct outputs *o, enum outputs_file file, const char **ret_path, struct err *err);
/* DIR/FOLDER/STEMsuffix.png for the place FOLDER/STEM.ext (asked.h), whose folders are made; -2.png and so on where that is a file that may not be replaced, or was given away before. Borrowed
 * until the next call. */
int outputs_picture(struct outputs *o, const char *place, const char *suffix, const char **ret_path, struct err *err);
/* Removes what an earlier predict wrote there under the first of these names, unless it was given away since. */
void outputs_forget(struct outputs *o, const char *place, const char *suffix);
