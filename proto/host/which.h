/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/which.h - finds the program of a command, as a shell does. */
#pragma once
#include <limits.h>
#include <stdbool.h>

/* A name without a slash is looked for in path ("/bin:/usr/bin", or NULL), another one from the folder. ret: where it
 * is, or for a name with a slash was looked for. Returns whether this user may execute it. */
bool which_find(const char *name, const char *folder, const char *path, char ret[PATH_MAX]);
bool which_is_folder(const char *path);
