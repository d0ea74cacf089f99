/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobtext.h - the text of a job file before it is parsed. People
 * write it by hand, in the style of other programs. No I/O. */
#pragma once
#include <stddef.h>

struct err;

/* Overwrites comments with blanks, so that the text after them keeps its line and column. A comment begins with `//`
 * outside strings and ends with its line. */
void jobtext_blank(char *text, size_t len);
/* Explains a text that is not JSON. Returns ERR_INPUT, with file, line and column, if the text has a construct that
 * other programs accept as JSON. Returns 0 for any other mistake. */
int jobtext_explain(const char *text, size_t len, const char *path, struct err *err);
