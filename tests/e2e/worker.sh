#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The real trainer, alone and under detd: gradients that are not finite, sizes of the network, many classes, whose checkpoints, late pictures.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 worker.py
