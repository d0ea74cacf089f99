#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The exported pair in OpenCV's dnn: predict's boxes. Needs a Python that has cv2
# (Debian's python3-opencv); OpenCV 5 reads no darknet files.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
for python in "${DETD_OPENCV_PYTHON:-}" python3; do
    if [ -n "$python" ] && "$python" -c 'import cv2; cv2.dnn.readNetFromDarknet' 2>/dev/null; then
        DETD_BUILD=$build exec "$python" export.py opencv
    fi
done
echo "skip: no Python with OpenCV 4 (DETD_OPENCV_PYTHON)"
exit 77
