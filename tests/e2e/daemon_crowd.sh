#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # More clients than detd has room for, and such as ask more than their share.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 daemon_crowd.py
