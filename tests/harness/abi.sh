#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/harness/abi.sh - a change to any header that trainer and plugin share
# changes the number by which a plugin of other sources is refused; other changes do not.
set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/worker"
cp -r Makefile mk proto "$tmp"
cp -r worker/core worker/kernels worker/ops worker/comm "$tmp/worker"
cd "$tmp"
number() { make -s abi; }
first=$(number)
[[ $first =~ ^0x[0-9a-f]{8}u$ ]] || { echo "abi: no number: $first" >&2; exit 1; }
for header in worker/core/device.h worker/core/param.h worker/core/tensor.h worker/ops/optim.h worker/ops/operand.h \
    worker/comm/comm.h proto/hash/hash.h proto/err.h; do
    echo 'struct more;' >>"$header"
    [ "$(number)" != "$first" ] || { echo "abi: $header may change, and an old plugin is taken" >&2; exit 1; }
    sed -i '$d' "$header"
done
echo 'struct more;' >>worker/core/arena.h
[ "$(number)" = "$first" ] || { echo "abi: worker/core/arena.h is no business of a plugin" >&2; exit 1; }
echo "abi: $first"
