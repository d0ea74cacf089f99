#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The bundle on a host that has nothing but glibc: unpacked into a folder with a
# space in its name, with an empty environment, every library from the bundle or glibc's, a small job trained by a
# private detd; and again, where that may be done, in a root that holds glibc and the bundle alone.
set -eu
cd "$(dirname "$0")/../.."
build=${DETD_BUILD:-build}
if nm "$build/detd" 2>/dev/null | grep -qE '__[atu]san_|__ubsan_'; then
    echo "skip: a build with sanitizers is not bundled"
    exit 77
fi
glibc=$(getconf GNU_LIBC_VERSION)
if [ "$(printf '%s\n' "glibc 2.36" "$glibc" | sort -V | tail -1)" != "glibc 2.36" ]; then
    echo "skip: a bundle is built on Debian 12, with glibc 2.36 at most; here is $glibc"
    exit 77
fi
make --no-print-directory -s B="$build" bundle
tmp=$(mktemp -d)
daemon=
cleanup() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    [ -z "$daemon" ] || wait "$daemon" 2>/dev/null || true
    rm -rf --one-file-system "$tmp"
}
trap cleanup EXIT
fail() { echo "bundle: $*" >&2; exit 1; }

mkdir "$tmp/a place"
tar -xzf "$build"/detd-bundle-*.tar.gz -C "$tmp/a place"
root=$(echo "$tmp/a place"/detd-bundle-*)

# ---- where libraries come from ----
glibc='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt)\.so'
for p in detd detctl detd-job detd-worker libdetd-cuda.so; do
    [ -e "$root/bin/$p" ] || continue
    while read -r name path; do
        [[ $name =~ $glibc ]] && continue
        case $path in "$root/bin/../lib/"* | "$root/lib/"*) ;; *) fail "$p takes $name from '$path'" ;; esac
    done < <(env -i /usr/bin/ldd "$root/bin/$p" | sed -nE 's/^\s*(\S+) => (.*) \(0x.*/\1 \2/p; s/^\s*(\S+) => not found/\1 nowhere/p')
done
for p in detd detctl detd-job detd-worker detd-launch; do
    env -i "$root/bin/$p" --help >/dev/null || fail "$p --help"
done
if [ -e "$root/bin/libdetd-cuda.so" ] && readelf -d "$root/bin/libdetd-cuda.so" | grep -E 'NEEDED.*(cuda|cudnn|cublas|nccl)'; then
    fail "the plugin is linked with a library of CUDA"
fi
if [ -e "$root/bin/libdetd-cuda.so" ] && [ "$(nm -D --defined-only "$root/bin/libdetd-cuda.so" | awk '{print $3}')" != detd_backend ]; then
    fail "the plugin exports more than detd_backend"
fi

for f in LICENSE docs/NOTICE; do cmp "$f" "$root/${f##*/}" || fail "no $f"; done

# ---- a job ----
python3 tests/demo/make_shapes.py "$tmp/shapes" --train 16 --val 4 --seed 1 --size 64 >/dev/null
cat >"$tmp/job.json" <<'JOB'
{ "name": "tiny", "model": { "preset": "yolov3_tiny", "size": 64, "width": 0.25 },
  "data": { "train": { "annotations": "shapes/train.json", "images": "shapes/images" },
            "val": { "annotations": "shapes/val.json", "images": "shapes/images" } },
  "train": { "steps": 4, "batch": 4, "shards": 2 }, "val": { "every": 4 }, "run": { "ranks": 2, "device": "cpu" } }
JOB
clean=(env -i HOME="$tmp" DETD_SOCKET="$tmp/detd.sock")
run() { "${clean[@]}" "$@"; }
# no function: $! has to be detd itself
"${clean[@]}" "$root/bin/detd" --state "$tmp/state" --socket "$tmp/detd.sock" >"$tmp/detd.log" 2>&1 &
daemon=$!
for ((i = 0; ; i++)); do
    run "$root/bin/detctl" info >/dev/null 2>&1 && break
    { [ $i -lt 600 ] && kill -0 "$daemon" 2>/dev/null; } || { cat "$tmp/detd.log" >&2; fail "detd does not come up"; }
    sleep 0.1
done
run "$root/bin/detctl" submit "$tmp/job.json" --watch >"$tmp/job.log" 2>&1 || { cat "$tmp/job.log" "$tmp/detd.log" >&2; fail "the job"; }
[ -s "$tmp/state/jobs/1/checkpoints/step-4/model.safetensors" ] || fail "the job left no model"
kill "$daemon"
wait "$daemon" || fail "detd left with status $?"
daemon=

# ---- a root with nothing but glibc and the bundle ----
bare=$tmp/bare
mkdir -p "$bare/proc" "$bare/tmp" "$bare/dev"
cp -r "$root" "$bare/detd"
cp -r "$tmp/shapes" "$tmp/job.json" "$bare/"
ldd "$root/bin/detd-worker" "$root/bin/detd" | sed -nE 's/.*=> (\S+) \(0x.*/\1/p; s/^\s*(\/\S+) \(0x.*/\1/p' | sort -u |
    while read -r path; do
    [[ $(basename "$path") =~ $glibc ]] && install -D -m 755 "$(readlink -f "$path")" "$bare$path"
done
for l in libdl.so.2 libpthread.so.0 librt.so.1; do
    path=$(ldconfig -p 2>/dev/null | awk -v l=$l '$1 == l {print $NF; exit}')
    [ -z "$path" ] || install -D -m 755 "$(readlink -f "$path")" "$bare$path"
done
# shellcheck disable=SC2016 # the inner shell expands
if ! unshare --mount --pid --fork --kill-child sh -c 'mount --make-rprivate / && mount -t proc proc "$1/proc"' sh "$bare" 2>/dev/null; then
    echo "skip: a bare root cannot be made by this user"
    echo "bundle: passed"
    exit 0
fi
# shellcheck disable=SC2016
unshare --mount --pid --fork --kill-child sh -c 'mount --make-rprivate / && mount -t proc proc "$1/proc" &&
    exec chroot "$1" /detd/bin/detd-worker --dir /tmp/run /job.json run.ranks=1 run.device=auto' sh "$bare" >"$tmp/bare.log" 2>&1 ||
    { cat "$tmp/bare.log" >&2; fail "training in a bare root"; }
[ -s "$bare/tmp/run/checkpoints/step-4/model.safetensors" ] || fail "the bare root has no model"
if [ -e "$root/bin/libdetd-cuda.so" ]; then
    grep 'run.device auto: the CPU is used: this machine has no NVIDIA driver' "$tmp/bare.log" ||
        { cat "$tmp/bare.log" >&2; fail "the plugin did not load"; }
fi
echo "bundle: passed, in a bare root too"
