#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # mk/bundle.sh PROGRAMS OUT [PLUGIN] - makes the folder OUT and OUT.tar.gz: the
# programs of the folder PROGRAMS, linked to look for libraries in ../lib, the libraries that are not glibc's, the
# plugin, manual pages, systemd units. Nothing of CUDA goes in: the plugin finds it on the host.
set -eu
programs=$1 out=$2 plugin=${3:-}
newest=2.36 # the newest version of glibc that a bundle may need

# Libraries that every glibc host has. The bundle contains all others.
glibc='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libutil)\.so'

rm -rf "$out" "$out.tar.gz"
mkdir -p "$out/bin" "$out/lib" "$out/share/doc" "$out/share/systemd"
for p in detd detctl detd-job detd-worker detd-launch; do
    install -m 755 "$programs/$p" "$out/bin/$p"
    strip --strip-debug "$out/bin/$p"
done
[ -z "$plugin" ] || { install -m 644 "$plugin" "$out/bin/" && strip --strip-debug "$out/bin/$(basename "$plugin")"; }

ldd "$programs"/detd "$programs"/detctl "$programs"/detd-job "$programs"/detd-worker | awk '$2 == "=>" {print $1, $3}' | sort -u |
    while read -r name path; do
        [[ $name =~ $glibc ]] && continue
        [ -f "$path" ] || { echo "bundle: $name is not installed here" >&2; exit 1; }
        install -m 644 "$(readlink -f "$path")" "$out/lib/$name"
        package=$(dpkg -S "$(readlink -f "$path")" 2>/dev/null || dpkg -S "${path#/usr}" 2>/dev/null || true)
        package=${package%%:*}
        [ -z "$package" ] || install -m 644 "/usr/share/doc/$package/copyright" "$out/share/doc/$package.copyright"
    done

for m in docs/man/*; do install -D -m 644 -t "$out/share/man/man${m##*.}" "$m"; done
install -m 644 -t "$out/share/systemd" systemd/*
install -D -m 644 -t "$out/share/detd/python/detd" python/detd/*.py
install -D -m 644 -t "$out/share/detd/python/detd/hooks" python/detd/hooks/*.py
install -m 644 mk/bundle.txt "$out/README"
install -m 644 -t "$out" LICENSE docs/NOTICE

# The version of glibc that the programs need decides which hosts can run them.
for f in "$out"/bin/* "$out"/lib/*; do
    needs=$(objdump -T "$f" 2>/dev/null | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
    if [ "$(printf '%s\n' "GLIBC_$newest" "$needs" | sort -V | tail -1)" != "GLIBC_$newest" ]; then
        echo "bundle: ${f#"$out"/} needs ${needs/_/ }, a bundle may need GLIBC $newest at most: build it on Debian 12" >&2
        exit 1
    fi
done

tar -C "$(dirname "$out")" --sort=name --owner=0 --group=0 --numeric-owner -czf "$out.tar.gz" "$(basename "$out")"
echo "$out.tar.gz"
