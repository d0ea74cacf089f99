/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/plain.h - text for a terminal: names of files and classes come
 * from a data set and may hold characters that a terminal obeys. */
#pragma once
#include <stdio.h>

/* A stream to fd, which stays open. If fd is a terminal, it writes clean_shown() for each character that a terminal
 * would obey (proto/clean.h), except line ends and tabs; a file or a pipe gets the bytes as they are. It is buffered
 * like stdout or stderr, but lines to stderr go out whole. NULL: out of memory. */
FILE *plain_open(int fd);
