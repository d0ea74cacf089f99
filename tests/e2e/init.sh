#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # model.init from a model of another class count: what was loaded is told and stored, what does not fit fails once and for good.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 init.py
