/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/room.h - what a file that cannot grow lacks, in words. */
#pragma once

/* The beginning of a sentence; NULL: `error`, of errno, is none of no room. Static. */
const char *room_lacks(int error);
