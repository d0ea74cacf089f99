#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Predict in folders of the user's: no file is lost, names stay unique, records name their pictures, a job without a checkpoint leaves nothing.
set -eu
exec python3 tests/e2e/predict.py "${DETD_BUILD:-build}"
