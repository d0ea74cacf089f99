#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # What the keys of a darknet .cfg do to a job: rates of layers, layers that do not train, heads of other coordinates, keys that are ignored.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 cfg.py
