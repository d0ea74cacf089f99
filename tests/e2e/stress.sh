#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Jobs under errand.stress, on one to three ranks, on the CPU and on an emulated
# GPU, leave the same evidence, rows and tensors as undisturbed ones.
set -eu
cd "$(dirname "$0")/../.."
prove() { python3 tests/search/prove/prove.py "${DETD_BUILD:-build}" --report /dev/null "$@"; }
prove --runs 3 --only 'stress,tiny sgd,tiny sync_bn'
prove --runs 1 --only 'gpu stress,tiny sync_bn'
