/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/versions.h - what the device asks about NVIDIA's libraries without seeing their headers (cuda/libs.h has the tables). */
#pragma once

struct err;
struct device_info;

/* 0 where every library that a single rank needs can be opened and is new enough, else ERR_UNSUPPORTED with the sentence of the first that
 * is not. */
int libs_check(struct err *err);
/* Appends "cudnn", "cublasLt" and "nccl" with their versions, those that have been opened, while there is room. */
void libs_info(struct device_info *ret);
