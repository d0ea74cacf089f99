#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Every cell of the matrix of make prove with every fifth model, once. The
# emulated GPU has the small models only; with TEST_LONG=2 all of them.
set -eu
cd "$(dirname "$0")/../../.."
short() { python3 tests/search/prove/prove.py "${DETD_BUILD:-build}" --runs 1 --thin 5 --report /dev/null "$@"; }
if [ "${TEST_LONG:-0}" -ge 2 ]; then
    short
else
    short --only cpu
    short --only "gpu,tiny sgd,cfg,mask rcnn"
fi
