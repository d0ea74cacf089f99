/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/folder.h - makes the names of folders survive a loss of power. A
 * name is durable when the folder that holds it is. */
#pragma once

struct err;

/* Waits till the names in the folder are durable. */
int folder_sync(const char *path, struct err *err);
/* Waits till the name `path` is durable: syncs the folder that holds it. */
int folder_sync_name(const char *path, struct err *err);
/* Makes the folder if it is missing, with the rights `mode`. Its name is durable afterwards, also if the folder was
 * there before. */
int folder_make(const char *path, unsigned mode, struct err *err);
