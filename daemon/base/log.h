/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/log.h - messages of detd about itself and the node, a line each
 * on stderr. If stderr leads to the journal, lines begin with their level, as in sd-daemon(3). Any thread. */
#pragma once

/* level: that of an event, "info", "warning" or "error". A line has at most about 1,000 bytes. Never waits for a reader
 * (proto/host/tell.h). */
void log_line(const char *level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
