#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Mask R-CNN learns a few pictures by heart: boxes, masks, drawn pictures, and weights that go out in others' names and come back.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 rcnn.py
