/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/wipe.h - removes a folder with all that is in it. Follows no link, and does a bounded part at a time. File work, for a thread. */
#pragma once

struct err;

/* Removes at most `max` entries of the folder, however deep they lie, or the file that is called so. 1: there are more; 0: nothing of that name is there; < 0: what remains cannot be removed. */
int wipe_folder(const char *path, int max, struct err *err);
