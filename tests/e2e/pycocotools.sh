#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # COCO's own tools read predict's output of a split: their numbers are those of
# the validation, also of each class.
set -eu
python=${DETD_TORCH_PYTHON:-python3}
data=$(dirname "$0")/../../../shared/data/bccd
[ -d "$data" ] || { echo "skip: no ../shared/data"; exit 77; }
"$python" -c 'import pycocotools.cocoeval' 2>/dev/null || { echo "skip: no Python with pycocotools (DETD_TORCH_PYTHON)"; exit 77; }
exec "$python" tests/e2e/pycocotools_reads.py "${DETD_BUILD:-build}"
