/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/foreign.h - files of annotation tools that detd does not read: their user hears which tool wrote them and what to export there instead. */
#pragma once

struct err;
struct problems;

/* Looks at annotations that could not be read: a file, or the first .json or .xml file of a folder. Returns ERR_DATA, with the tool and the way out in err and
 * without what problems holds, which it explains; 0 where no tool is recognised, err and problems untouched. */
int foreign_tell(const char *path, struct problems *problems, struct err *err);
