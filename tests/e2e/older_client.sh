#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # What an older detctl said and read (tests/e2e/detctl-VERSION.jsonl), to the detd of now: it is understood, and finds all that it looked at.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 older_client.py
