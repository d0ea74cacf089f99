/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/image/image_names.h - which files are pictures, by their names:
 * one list of endings for all readers, in upper or lower case. The content of a file tells its kind of picture
 * (image.h). Endings of kinds that cannot be decoded are in the list too, so that reading such a file fails by name
 * instead of passing it over. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct err;

/* The endings of pictures that can be decoded, for messages. */
#define IMAGE_NAMES_READ ".jpg, .jpeg, .png, .bmp or .webp"

/* The beginning of a path's ending, at its dot; the end of the path if it has no ending. A dot that begins a name
 * begins no ending. */
const char *image_name_ending(const char *path);
/* Is the ending that of a picture? */
bool image_name_is_picture(const char *path);

/* The pictures of one folder. Zeroed: no folder was listed. */
struct image_names {
    char *folder;
    char **file; /* [n] names without the folder; files that differ only in the ending stand together */
    size_t n, room;
    size_t others; /* files that are neither pictures nor hidden nor folders */
    char *other;   /* the first of them by its bytes; NULL: there are no others */
};

/* Lists a folder, unless it is the one listed last. -errno if the folder cannot be read, -ENOMEM; names is empty
 * then. */
int image_names_list(struct image_names *names, const char *folder, struct err *err);
/* The pictures with the name `stem` before the ending: their number, the first of them in *ret_first. */
size_t image_names_find(const struct image_names *names, const char *stem, size_t *ret_first);
void image_names_free(struct image_names *names);
