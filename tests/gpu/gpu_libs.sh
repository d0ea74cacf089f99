#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/gpu/gpu_libs.sh FOLDER - installs the libraries of FOLDER that this
# machine lacks, for programs unpacked from tests/gpu/gpu_pack.sh: ranks start without LD_LIBRARY_PATH. Libraries that
# the linker already finds are neither touched nor hidden. Needs root; to undo: rm -r /usr/local/lib/detd-gpu
# /etc/ld.so.conf.d/zz-detd-gpu.conf && ldconfig
set -eu
to=/usr/local/lib/detd-gpu conf=/etc/ld.so.conf.d/zz-detd-gpu.conf # read last
has=$(ldconfig -p)
for f in "$1"/*.so*; do
    name=$(basename "$f")
    if [[ $has == *$'\t'"$name (libc6,"* ]]; then
        echo "$name: this machine's own"
        continue
    fi
    install -D -m 644 "$f" "$to/$name"
    echo "$to" >"$conf"
    echo "$name: $to/$name"
done
ldconfig
