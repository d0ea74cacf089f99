#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # detctl on a node that a group shares: completion, drain, jobs after others, limits, copies of rows, and what is wrong.
set -eu
exec python3 tests/e2e/detctl_node.py "${DETD_BUILD:-build}"
