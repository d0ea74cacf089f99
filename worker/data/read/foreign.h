/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/foreign.h - files of annotation tools that detd does not
 * read: names the tool that wrote them, and the format to export there instead. */
#pragma once

struct err;
struct problems;

/* Looks at annotations that could not be read: a file, or the first .json or .xml file of a folder. Returns ERR_DATA if
 * it recognises a tool: err names the tool and the remedy, and problems is emptied, as the tool explains them. Returns
 * 0 if no tool is recognised; err and problems stay untouched. */
int foreign_tell(const char *path, struct problems *problems, struct err *err);
