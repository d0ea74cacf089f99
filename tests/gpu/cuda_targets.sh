#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The plugin as it was built: every file of kernels holds code for sm_80, sm_90
# and sm_100 and text (PTX) for later GPUs, nothing is linked that a host may lack, and one symbol is exported.
set -eu
plugin=${DETD_BUILD:-build}/libdetd-cuda.so
[ -e "$plugin" ] || { echo "skip: no CUDA plugin is built here"; exit 77; }
needs=$(readelf -d "$plugin" | sed -nE 's/.*NEEDED.*\[(.*)\]/\1/p' | grep -vE '^(libc|libm|ld-linux.*)\.so' || true)
[ -z "$needs" ] || { echo "the plugin needs $needs" >&2; exit 1; }
[ "$(nm -D --defined-only "$plugin" | awk '{print $3}')" = detd_backend ] ||
    { echo "the plugin exports more than detd_backend" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
objcopy --dump-section .nv_fatbin="$tmp/fatbin" "$plugin" "$tmp/copy"
python3 -c '
# A fat binary: u32 magic, u16 version, u16 header bytes, u64 payload bytes; its entries: u16 kind (1 PTX, 2 ELF), u16,
# u32 header bytes, u64 payload bytes, ..., at byte 28 u32 architecture.
import collections, struct, sys
data, at, files, have = open(sys.argv[1], "rb").read(), 0, 0, collections.Counter()
while True:
    at = data.find(struct.pack("<I", 0xBA55ED50), at)
    if at < 0:
        break
    _, _, head, size = struct.unpack_from("<IHHQ", data, at)
    entry, end, files = at + head, at + head + size, files + 1
    while entry < end:
        kind, _, head, size = struct.unpack_from("<HHIQ", data, entry)
        have[({1: "compute", 2: "sm"}.get(kind, "?"), struct.unpack_from("<I", data, entry + 28)[0])] += 1
        entry += head + size
    at = end
print("%d files of kernels: %s" % (files, ", ".join("%s_%d" % k for k in sorted(have))))
want = {("sm", 80): files, ("sm", 90): files, ("sm", 100): files, ("compute", 100): files}
sys.exit(0 if files > 0 and dict(have) == want else 1)' "$tmp/fatbin"
