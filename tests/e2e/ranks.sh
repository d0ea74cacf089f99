#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The real detd and trainer: the same rows and the same model, to the bit, whatever the number of ranks, threads, waves, the ISA or the tier.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 ranks.py
