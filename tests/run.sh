#!/usr/bin/env bash
# tests/run.sh BUILD PROGRAM... - runs cmocka programs (two at a time) and then *.sh tests (one at a time), prints what failed, and closes
# with "N passed, N failed, N skipped". A shell test passes with status 0, is skipped with 77 (its last line says why), else fails.
set -u
build=$1
shift
export DETD_BUILD=$build
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

programs=() scripts=()
for t in "$@"; do
    case $t in *.sh) scripts+=("$t") ;; *) programs+=("$t") ;; esac
done

# One line of result a test: name passed failed skipped seconds
run_program() {
    local log start=$SECONDS status p f s
    log=$1/${2//\//_}.log
    timeout 600 "$2" >"$log" 2>&1
    status=$?
    p=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
    f=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
    s=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
    [ "$status" -eq 0 ] || [ "${f:-0}" -gt 0 ] || f=1 # died before its summary
    echo "$2 ${p:-0} ${f:-0} ${s:-0} $((SECONDS - start)) $log" >"$log.result"
    [ "${f:-0}" -eq 0 ] && echo "ok    $2 (${p:-0}${s:+, $s skipped})" || echo "FAIL  $2"
}
export -f run_program
# shellcheck disable=SC2016 # the inner shell expands
[ ${#programs[@]} -eq 0 ] || printf '%s\n' "${programs[@]}" | xargs -P 2 -I{} bash -c 'run_program "$0" "$1"' "$out" {}

for t in "${scripts[@]}"; do
    log=$out/${t//\//_}.log start=$SECONDS
    timeout 900 bash "$t" >"$log" 2>&1
    case $? in
    0) r="1 0 0" && echo "ok    $t ($((SECONDS - start)) s)" ;;
    77) r="0 0 1" && echo "skip  $t: $(tail -1 "$log")" ;;
    *) r="0 1 0" && echo "FAIL  $t" ;;
    esac
    echo "$t $r $((SECONDS - start)) $log" >"$log.result"
done

read -r passed failed skipped < <(cat "$out"/*.result | awk '{p += $2; f += $3; s += $4} END {print p + 0, f + 0, s + 0}')
for r in "$out"/*.result; do
    read -r name _ f s _ log <"$r"
    [ "$s" -eq 0 ] || [ "${name%.sh}" != "$name" ] || grep -hE '^skipped|skip:' "$log" | sort -u | sed "s|^|$name: |"
    if [ "$f" -ne 0 ]; then
        echo "---- $name"
        tail -n 40 "$log"
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
