#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/gpu/cuda_msan.sh - the CUDA device's kernels on the emulated GPU under
# clang's memory sanitizer: no result depends on memory that was never written: a kernel's shared arrays, or memory that
# an op allocates. Builds into DETD_BUILD/msan. Skipped (77) if clang or its runtime is not installed, or if the tests
# already run with another sanitizer.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${DETD_BUILD:-build}
cc=${CLANG:-clang}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

case $build in
*-address* | *-thread* | *-undefined*)
    echo "another sanitizer is at work: the plain run has this one"
    exit 77
    ;;
esac
echo 'int main(void) { return 0; }' >"$out/empty.c"
if ! "$cc" -fsanitize=memory -o "$out/empty" "$out/empty.c" >"$out/log" 2>&1 || ! "$out/empty"; then
    echo "no $cc with the runtime of -fsanitize=memory (Debian: clang, libclang-rt-dev)"
    exit 77
fi

# The op tests that need only the two devices; a single build of the CPU's device is enough.
programs=("$build/msan/tests/device/test_emu")
while read -r t; do
    grep -q cpu_backend_avx "$t" || programs+=("$build/msan/${t%.c}")
done < <(grep -lE 'uses: proto worker/core cpu cuda( \*/)?$' tests/device/test_*.c)
if ! env -u MAKEFLAGS make --no-print-directory -j"$(nproc)" B="$build/msan" SAN=memory ISAS=generic \
    CC="$cc -w" CXX="$cc++ -w" "${programs[@]}" >"$out/log" 2>&1; then
    tail -n 20 "$out/log" >&2
    exit 1
fi
bad=0
for t in "${programs[@]}"; do
    if ! timeout 1200 "$t" >"$out/log" 2>&1; then
        echo "---- $t" >&2
        tail -n 40 "$out/log" >&2
        bad=1
    fi
done
[ "$bad" -eq 0 ] && echo "${#programs[@]} programs read nothing that nobody wrote"
exit "$bad"
