#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The real trainer: kill -9 of a rank, of detd-job, of detd, SIGSTOP of a rank; rows and model stay the same to the bit.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 super_train.py
