/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/plain.h - what people read on a terminal: names of files and classes are whatever a data set says, and a terminal obeys some characters. */
#pragma once
#include <stdio.h>

/* A stream to fd, which stays open: '?' stands for all that a terminal would obey (proto/clean.h) but line ends and tabs. It is buffered
 * as stdout and stderr are, but that lines of the latter go out whole. NULL: out of memory. */
FILE *plain_open(int fd);
