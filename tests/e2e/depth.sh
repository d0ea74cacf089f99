#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # A depth network on real frames with the real programs: the motion it sees against the true one, equal for any number of ranks; files of poses that are bad.
set -eu
DATA=../shared/data/depth_bin
if [ ! -r "$DATA/poses.txt" ]; then
    echo "skip: no $DATA"
    exit 0
fi
DETD_BUILD="$(cd "${DETD_BUILD:-build}" && pwd)" exec python3 tests/e2e/depth.py "$@"
