#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # What is durable when somebody is told so, and that every state of the disk that a loss of power can leave is one from which a job ends as if nothing had been.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 order.py
