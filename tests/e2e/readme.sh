#!/usr/bin/env bash
# README's chapters, typed line by line.
set -eu
exec python3 tests/readme/readme.py "${DETD_BUILD:-build}"
