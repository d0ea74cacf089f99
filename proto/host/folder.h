/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/folder.h - folders whose names outlive a loss of power: a name is durable when the folder that holds it is. */
#pragma once

struct err;

/* Waits till the names in the folder are durable. */
int folder_sync(const char *path, struct err *err);
/* Waits till the name `path` is durable: syncs the folder that holds it. */
int folder_sync_name(const char *path, struct err *err);
/* Makes the folder where it is missing, with the rights `mode`. Its name is durable then, whoever made it. */
int folder_make(const char *path, unsigned mode, struct err *err);
