/* SPDX-License-Identifier: Apache-2.0 */ /* worker/comm/abi.h - all that the trainer and a device loaded as a plugin must understand alike: devices, operations, links, errors.
 *
 * make hashes the text of these headers and of what they include; that is DEVICE_ABI, which both are compiled with, so a plugin built from other
 * headers is refused. Nobody counts versions. */
#pragma once
#include "proto/err.h"
#include "worker/comm/transport.h"
#include "worker/core/device.h"
#include "worker/ops/families.h"
