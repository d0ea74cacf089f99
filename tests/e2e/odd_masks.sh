#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Odd and broken segmentations before a Mask R-CNN: told with file and id, or skipped and counted; what is odd but right is trained on.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 odd_masks.py
