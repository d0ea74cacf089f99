#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/gpu/gpu_pack.sh BUILD [BCCD [NCCL]] - packs this build for a machine with
# a GPU, where nothing can be built: BUILD/detd-gpu.tar.xz. In it are the programs, the tests that tests/gpu.sh runs and
# the benches that are built, all stripped; the scripts and their data; in lib/ the libraries that such a machine may
# lack, for tests/gpu/gpu_libs.sh; and data/bccd, a copy of the folder BCCD; and nccl, a copy of the folder NCCL, for
# several ranks on one GPU. The machine needs glibc as new as here, bash and python3.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd) bccd=${2:-} nccl=${3:-}
max=64000000 # bytes, that an upload may have
out=$build/detd-gpu
glibc='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt)\.so'

list=$(tests/gpu.sh --programs)
mapfile -t tests <<<"$list"
programs=(detd detctl detd-job detd-worker libdetd-cuda.so "${tests[@]/#/tests/}")
for b in step layers link engines; do
    [ ! -x "$build/tests/bench/bench_$b" ] || programs+=("tests/bench/bench_$b")
done

rm -rf "$out" "$out.tar.xz"
for p in "${programs[@]}"; do
    [ -f "$build/$p" ] || { echo "gpu_pack: there is no $build/$p (make all tests)" >&2; exit 1; }
    install -D -m 755 "$build/$p" "$out/build/$p"
    strip "$out/build/$p"
done
mkdir -p "$out/build/tests/bench" "$out/lib"
ln "$out/build/libdetd-cuda.so" "$out/build/tests/bench/" # programs look for it beside themselves
{ git rev-parse --short HEAD 2>/dev/null && [ -z "$(git status --porcelain 2>/dev/null)" ] || echo "and changes"; } |
    tr '\n' ' ' >"$out/build/commit"

ldd "${programs[@]/#/$build/}" | awk '$2 == "=>" {print $1, $3}' | sort -u | while read -r name path; do
    [[ $name =~ $glibc ]] || install -m 644 "$(readlink -f "$path")" "$out/lib/$name"
done
find tests -type f ! -name '*.pyc' ! -path 'tests/search/mutants/*' ! -path 'tests/stand/emu/*' -print0 | xargs -0 cp --parents -t "$out"
[ -z "$bccd" ] || { mkdir -p "$out/data" && cp -rL --no-preserve=mode "$bccd" "$out/data/bccd"; }
[ -z "$nccl" ] || cp -rL --no-preserve=mode "$nccl" "$out/nccl"

# Programs hold much of the same code, which a large window stores once; more effort saves little.
tar -C "$build" --sort=name --owner=0 --group=0 --numeric-owner -c detd-gpu | xz --lzma2=preset=1,dict=96MiB >"$out.tar.xz"
size=$(stat -c %s "$out.tar.xz")
rm -r "$out"
echo "$out.tar.xz: $((size / 1000)) kB, ${#programs[@]} programs${bccd:+, BCCD}${nccl:+, NCCL}"
[ "$size" -lt "$max" ] || { echo "gpu_pack: that is over $((max / 1000)) kB" >&2; exit 1; }
