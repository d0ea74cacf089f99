#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # detctl eval: checkpoints on any set, scores of classes, what is best by a metric.
set -eu
exec python3 tests/e2e/eval.py "${DETD_BUILD:-build}"
