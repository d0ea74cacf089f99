#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/gpu/cuda_scan.sh - floating-point atomics add in the order in which
# threads arrive, so no kernel may hold one: looks through the PTX of every cuda/*.cu, which the build keeps, for atomic
# or reduction instructions on floats, and through the sources for their names. Skipped (77) where the CUDA device is
# not built.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${DETD_BUILD:-build}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
bad=0

# Prints "kernel: instruction" of every such instruction in a PTX file.
float_atomics() {
    awk '/^(\.visible |\.weak )?\.(entry|func)/ || /^\.entry/ {
             name = $0
             sub(/.*\.(entry|func)( *\([^)]*\))? */, "", name)
             sub(/[ (].*/, "", name)
         }
         /(^|[^a-z0-9_.])(atom|red|multimem\.red)\.[a-z0-9.:_]*\.(f16|bf16|f32|f64)/ {
             sub(/^[ \t]+/, "")
             print name ": " $0
         }' "$1"
}

# The scan must find planted errors.
cat >"$out/probe.ptx" <<'PTX'
.visible .entry _Z5wrongPf(
	.param .u64 _Z5wrongPf_param_0
)
{
	atom.global.add.f32 	%f2, [%rd2], %f1;
	red.global.add.f64 	[%rd2], %fd1;
	@%p1 red.relaxed.gpu.global.add.noftz.bf16x2 	[%rd2], %r1;
	{ atom.add.noftz.f16x2 %r1,[%rd1],%r2; }
	atom.global.max.s32 	%r2, [%rd2], %r1;
}
PTX
if [ "$(float_atomics "$out/probe.ptx" | grep -c '^_Z5wrongPf: ')" -ne 4 ]; then
    echo "the scan does not find the floating-point atomics of its own probe:" >&2
    float_atomics "$out/probe.ptx" >&2
    exit 1
fi

found=$(grep -nE '\b(atomicAdd_(block|system)|unsafeAtomicAdd|(red|atom)\.[a-z.]*add\.(noftz\.)?(f|bf)[0-9])' cuda/*.cu cuda/*.h)
if [ -n "$found" ]; then
    echo "$found" >&2
    bad=1
fi

if [ ! -e "$build/libdetd-cuda.so" ]; then
    echo "no CUDA device is built here: only the sources were read"
    [ "$bad" -eq 0 ] && exit 77
    exit 1
fi
kernels=0
for source in cuda/*.cu; do
    ptx=$build/${source%.cu}.ptx
    if [ "$(grep -c '^\.target sm_' "$ptx")" -ne 3 ]; then
        echo "$source: $ptx is not that of three architectures" >&2
        bad=1
    fi
    kernels=$((kernels + $(grep -c '\.entry' "$ptx")))
    float_atomics "$ptx" | sed "s|^|$source, kernel |" | sort -u >"$out/found"
    if [ -s "$out/found" ]; then
        c++filt <"$out/found" >&2
        bad=1
    fi
done
[ "$bad" -eq 0 ] && echo "no floating-point atomics in $kernels kernels"
exit "$bad"
