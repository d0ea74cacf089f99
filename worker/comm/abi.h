/* SPDX-License-Identifier: Apache-2.0 */ /* worker/comm/abi.h - all that the trainer and a device plugin must
 * understand alike: devices, operations, links, errors.
 *
 * make hashes the text of these headers and of all headers they include. The hash is DEVICE_ABI. Both sides are
 * compiled with it, so a plugin built from other headers is refused. There are no version numbers to maintain. */
#pragma once
#include "proto/err.h"
#include "worker/comm/transport.h"
#include "worker/core/device.h"
#include "worker/ops/families.h"
