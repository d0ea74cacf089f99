/* SPDX-License-Identifier: Apache-2.0 */ /* proto/version.h - the version of all programs, and of the control socket's
 * protocol (sup.sock has its own, in report.h). */
#pragma once

#define DETD_VERSION "0.1.0"
enum { DETD_PROTOCOL = 1 };
