#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/harness/fresh.sh - `make check` and `make demo` in a bare root of Debian
# 12 or 13: debootstrap, then chroot in mount, PID and IPC namespaces of its own, so that the host is not touched and
# nothing outlives it; a systemd runs the shipped units there (tests/e2e/systemd.sh). A package missing from the
# Makefile's list makes this fail. Needs root and debootstrap. FRESH_SUITE: bookworm (the default) or trixie. FRESH_DIR:
# where the root is built (default: a new folder under TMPDIR; 3 GB). FRESH_TARGETS: the targets of make (default: check
# demo).
set -eu
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "check-fresh: must be run as root (chroot, namespaces)" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "check-fresh: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }
root=${FRESH_DIR:-$(mktemp -d)}
targets=${FRESH_TARGETS:-check demo}
suite=${FRESH_SUITE:-bookworm}
trap 'rm -rf --one-file-system "$root"' EXIT
mkdir -p "$root" && chmod 755 "$root" # tests become other users, which must be able to enter

# The host's Debian mirror and proxy, so that it works wherever apt works.
mirror=$(grep -rhoE '^(deb|URIs:) .*' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
    grep -oE 'https?://[^ ]*/debian/?( |$)' | head -1)
mirror=${mirror:-http://deb.debian.org/debian}
debootstrap --variant=minbase --include=make,ca-certificates,systemd "$suite" "$root" "${mirror% }" >"$root.log" 2>&1 ||
    { tail -5 "$root.log" >&2; exit 1; }
rm -f "$root.log"
cp -a /etc/apt/apt.conf* "$root/etc/apt/"
cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
cp -L /etc/hosts "$root/etc/hosts" 2>/dev/null || true
mkdir -p "$root/src"
git archive --format=tar HEAD | tar -x -C "$root/src"
for target in $targets; do
    echo "== make $target in a bare root of $suite"
    # shellcheck disable=SC2016
    unshare --mount --pid --ipc --fork --kill-child sh -c '
        mount --make-rprivate / && mount --bind "$1" "$1" && mount -t proc proc "$1/proc" && mount -t sysfs -o ro sys "$1/sys" &&
        mount -t cgroup2 cgroup "$1/sys/fs/cgroup" && mount -t tmpfs tmp "$1/tmp" &&
        mount -t tmpfs dev "$1/dev" &&
        for d in null zero full random urandom; do : >"$1/dev/$d" && mount --bind "/dev/$d" "$1/dev/$d" || exit 1; done &&
        ln -s /proc/self/fd "$1/dev/fd" && mkdir "$1/dev/pts" &&
        mount -t devpts -o newinstance,ptmxmode=0666 pts "$1/dev/pts" && ln -s pts/ptmx "$1/dev/ptmx" &&
        mkdir "$1/dev/shm" && mount -t tmpfs shm "$1/dev/shm" &&
        exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
            ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} make -C /src "$2"' sh "$root" "$target"
done
echo "check-fresh: passed"
