#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # What detectors of mistakes in data say: detctl check's part that looks at data, and what a job does with the same.
set -eu
cd "$(dirname "$0")/../.."
exec python3 tests/e2e/check.py "${DETD_BUILD:-build}"
