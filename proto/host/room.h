/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/room.h - says in words why a file cannot grow. */
#pragma once

/* The beginning of a sentence; NULL: `error`, of errno, is not about a lack of room. Static. */
const char *room_lacks(int error);
