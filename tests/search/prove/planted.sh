#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Every planted fault: the controls are caught by the matrix, the others are named
# by detctl diff.
set -eu
cd "$(dirname "$0")/../../.."
exec python3 tests/search/prove/planted.py "${DETD_BUILD:-build}"
