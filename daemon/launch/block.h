/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/block.h - a short note that can be written while the disk is
 * full.
 *
 * Its file is made, and its bytes are written and synced, while there is room. A later note only overwrites these
 * bytes. ext4, XFS and tmpfs do that in place and need no room. A file system that writes to new places (btrfs, ZFS;
 * XFS for a file that was copied by reference) may refuse, and block_write() then tells the caller. A note survives the
 * process at once. It is not synced, so a loss of power may take it. The file is shorter than a sector: it holds one
 * whole note, the old or the new one. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct err;

enum { BLOCK_NOTE_MAX = 255 };

/* Makes the file with an empty note, unless it is there. Error: the disk has no room, or something else has this
 * name. */
int block_make(const char *path, struct err *err);
/* Replaces the note by `text`, of at most BLOCK_NOTE_MAX bytes. False: block_make() made no such file, or the file
 * system refuses. */
bool block_write(const char *path, const char *text);
/* ret: of BLOCK_NOTE_MAX + 1; "": no note, or no such file. */
void block_read(const char *path, char *ret);
