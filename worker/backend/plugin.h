/* SPDX-License-Identifier: Apache-2.0 */ /* worker/backend/plugin.h - loads the CUDA device, a shared library beside
 * the program. */
#pragma once

struct device_ops;
struct err;

/* The file is libdetd-cuda.so in the folder of this program, or the descriptor in DETD_PLUGIN_FD: the starter of ranks
 * opens program and plugin once, so that an upgrade during a job changes no bits. It stays loaded. ERR_UNSUPPORTED, in
 * one sentence: there is no plugin, it cannot be loaded, it belongs to another version, or this machine cannot run it
 * (device.h available()). */
int plugin_backend(const struct device_ops **ret_ops, struct err *err);
