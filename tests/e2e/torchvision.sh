#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Weights of torchvision's maskrcnn_resnet50_fpn: in and out to the bit, and the
# same detections. Needs a Python that has torchvision.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
for python in "${DETD_TORCH_PYTHON:-}" python3; do
    if [ -n "$python" ] && "$python" -c 'import torchvision, PIL' 2>/dev/null; then
        DETD_BUILD=$build exec "$python" torchvision_weights.py
    fi
done
echo "skip: no Python with torchvision (DETD_TORCH_PYTHON)"
exit 77
