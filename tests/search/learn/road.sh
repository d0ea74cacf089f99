#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # A depth network learns from a real video, on two ranks, that a road is flat.
# Minutes: one of `make check-long LONG=1`.
set -eu
cd "$(dirname "$0")/../../.."
DATA=../shared/data/depth_highway
if [ ! -r "$DATA/road_plane.json" ]; then
    echo "skip: no $DATA"
    exit 0
fi
DETD_BUILD="$(cd "${DETD_BUILD:-build}" && pwd)" PYTHONPATH=tests/e2e:tests/bench exec python3 tests/search/learn/road.py "$DATA"
