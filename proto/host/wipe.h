/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/wipe.h - removes a folder with its contents. Follows no link,
 * and works in pieces of bounded size. File work, for a thread. */
#pragma once

struct err;

/* Removes at most `max` entries of the folder, at any depth; or the file, if `path` is a file. Returns 1: there are
 * more; 0: the name is gone; < 0: the rest cannot be removed. */
int wipe_folder(const char *path, int max, struct err *err);
