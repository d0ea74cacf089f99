#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The shipped units: systemd's verdict on them; and, if namespaces can be made
# here, a real systemd that starts, restarts and stops an installed detd, and shuts the node down in mid-job.
set -eu
cd "$(dirname "$0")/../.."
build=${DETD_BUILD:-build}
command -v systemd-analyze >/dev/null || { echo "skip: no systemd"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf --one-file-system "$tmp"' EXIT
make --no-print-directory -s B="$build" install PREFIX=/usr/local DESTDIR="$tmp/root" >/dev/null
units=$tmp/root/usr/local/lib/systemd/system

# ---- checks without running the units: every line is known, and each open line of
# `systemd-analyze security` has a reason in the unit ----
mkdir "$tmp/verify"
for unit in detd detd-launch; do
    sed "s|/usr/local/bin/|$tmp/root/usr/local/bin/|" "$units/$unit.service" >"$tmp/verify/$unit.service"
    cp "$units/$unit.socket" "$tmp/verify"
done
said=$(systemd-analyze verify --man=no "$tmp"/verify/*.service "$tmp"/verify/*.socket 2>&1 || echo "not valid")
[ -z "$said" ] || { echo "verify: $said" >&2; exit 1; }
for bound in detd=22 detd-launch=57; do
    unit=$units/${bound%=*}.service
    systemd-analyze security --offline=true --no-pager --threshold="${bound#*=}" "$unit" >"$tmp/security" ||
        { cat "$tmp/security" >&2; exit 1; }
    sed -n 's/^✗ \(SystemCallFilter=\)*\([^= ]*\).*/\2/p' "$tmp/security" | sort -u >"$tmp/open"
    grep -q . "$tmp/open"
    while read -r setting; do
        grep -q "^#.*$setting" "$unit" || { echo "$unit: no reason for $setting" >&2; exit 1; }
    done <"$tmp/open"
done

# ---- checks of the running units ----
if nm "$build/detd" 2>/dev/null | grep -qE '__[atu]san_|__ubsan_'; then
    echo "skip: sanitizers need what the unit forbids"
    exit 0
fi
python3 tests/e2e/systemd.py "$tmp"
