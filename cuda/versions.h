/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/versions.h - checks and versions of NVIDIA's libraries for files that
 * do not include their headers (cuda/libs.h has the tables). */
#pragma once

struct err;
struct device_info;

/* Returns 0 if every library that a single rank needs can be opened and is new enough. Otherwise returns
 * ERR_UNSUPPORTED with the sentence of the first that is not. */
int libs_check(struct err *err);
/* Appends "cudnn", "cublasLt" and "nccl" with their versions, for libraries that have been opened, while there is
 * room. */
void libs_info(struct device_info *ret);
