#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Before and after training: anchors of the data, pictures as the network sees them, a job that ends when it gets no better.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 habits.py
