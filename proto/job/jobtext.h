/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobtext.h - the text of a job file before it is parsed: people write it by hand, as they do in other programs. No I/O. */
#pragma once
#include <stddef.h>

struct err;

/* Makes blanks of comments, which begin with `//` outside strings and end with their line: what follows keeps its line and column. */
void jobtext_blank(char *text, size_t len);
/* Of a text that is no JSON: ERR_INPUT, with file, line and column, where it is one of those things that are JSON in other programs; 0: it is something else. */
int jobtext_explain(const char *text, size_t len, const char *path, struct err *err);
