/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/lock_holder.h - names in words the process that holds a lock
 * that should be free, as far as the kernel tells. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* ret: "process 12 (python3)". false: not known, for example if the lock was handed on to a process of another user.
 * Looks at all processes: for a thread. */
bool lock_holder(const char *path, char *ret, size_t size);
