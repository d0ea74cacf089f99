#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/harness/run_self.sh - tests/harness/run.sh finds the leftovers of a test,
# names the test, and removes them. It finds a skip without a reason or, with STRICT=1, without a row, and a program
# that dies or runs no test. It accepts a test that cleans up.
set -eu
cd "$(dirname "$0")/../.."
build=${DETD_BUILD:-build}
tmp=$(mktemp -d)
mkdir "$tmp/shm" # in /dev/shm, tests that run beside this one would be blamed for leftovers of this test
trap 'rm -rf "$tmp"' EXIT
fail() { echo "run_self: $*" >&2; cat "$tmp/said" >&2; exit 1; }
write() { cat >"$tmp/$1.sh"; }
run() { # run STATUS TEST...: the output of tests/harness/run.sh goes to $tmp/said
    local want=$1 status=0
    shift
    env -u CI TEST_GRACE=1 TEST_SKIPS="$tmp/skips" TEST_SHM="$tmp/shm" "${more[@]}" tests/harness/run.sh "$build" "$@" \
        >"$tmp/said" 2>&1 || status=$?
    [ "$status" -eq "$want" ] || fail "status $status instead of $want"
}
says() { grep -qE -- "$1" "$tmp/said" || fail "does not say: $1"; }
more=(STRICT=0)
echo '.*/listed.sh | the moon is .* | tides' >"$tmp/skips"

write clean <<'T'
f=$(mktemp)
sleep 1000 &
kill $!
wait $! || rm "$f"
T
write process <<'T'
env -i setsid bash -c 'sleep 1000 & echo $! >"$1"; wait' sh "${0%.sh}.pid" >/dev/null 2>&1 &
while ! [ -s "${0%.sh}.pid" ]; do :; done
T
write file <<'T'
mkdir -p "$TMPDIR/a/b" "$TMPDIR/empty" && touch "$TMPDIR/a/b/c"
T
write memory <<'T'
echo x >"$TEST_SHM/detd-run-self"
T
write listed <<'T'
echo 'skip: the moon is full' && exit 77
T
write part <<'T'
echo 'skip: rain'
T
write silent <<'T'
exit 77
T
write wrong <<'T'
exit 3
T

run 0 "$tmp/clean.sh" "$tmp/listed.sh" "$tmp/part.sh" "$tmp/unbuilt.sh=skip:no compiler"
says '^skipped: .*/listed.sh: the moon is full$'
says '^skipped: .*/part.sh a part: rain \(not listed'
says '^skipped: .*/unbuilt.sh: no compiler \(not listed'
says '^2 passed, 0 failed, 3 skipped$'

run 1 "$tmp/process.sh"
says 'process.sh: left behind:'
says 'process [0-9]+: sleep 1000'
! kill -0 "$(cat "$tmp/process.pid")" 2>/dev/null || fail "the process is still there"
run 1 "$tmp/file.sh"
says 'file a/b/c'
says 'file empty/'
run 1 "$tmp/memory.sh"
says "shared memory $tmp/shm/detd-run-self"
[ ! -e "$tmp/shm/detd-run-self" ] || fail "the shared memory is still there"

run 1 "$tmp/clean.sh" "$tmp/silent.sh"
says 'silent.sh: skipped without a reason'
run 1 "$tmp/clean.sh" "$tmp/wrong.sh" /bin/true /bin/false
says 'wrong.sh: ended with status 3'
says '/bin/true: ran no test'
says '/bin/false: ended with status 1'
says '^1 passed, 3 failed, 0 skipped$'
run 1 "$tmp/listed.sh" # nothing passed
more=(STRICT=1)
run 0 "$tmp/clean.sh" "$tmp/listed.sh"
run 1 "$tmp/clean.sh" "$tmp/part.sh"
says 'tests/skips has no row for that: rain'
run 1 "$tmp/clean.sh" "$tmp/unbuilt.sh=skip:no compiler"
# cmocka of Debian 12, and that of Debian 13, which names the group of tests.
for group in '' 'tests: '; do
    cat >"$tmp/program" <<T
#!/bin/sh
printf '%s\n' '[ RUN      ] one' 'skip: rain' '[  SKIPPED ] one' '[  PASSED  ] 2 test(s).' \
    '[  SKIPPED ] ${group}1 test(s), listed below:' '[  SKIPPED ] one'
T
    chmod 755 "$tmp/program"
    run 1 "$tmp/program"
    says 'tests/skips has no row for that: rain'
    sed -i 's/SKIPPED/FAILED/g; s/FAILED/FAILED /g; $a exit 1' "$tmp/program"
    run 1 "$tmp/program"
    says '^2 passed, 1 failed, 0 skipped$'
done
# A user's clone lacks the data beside it: each test that needs this data may be skipped.
mapfile -t asks < <(grep -lE 'no \.\./shared|\.\./shared/' -r --include='test_*.c' tests |
    sed "s|^|$build/|; s|\.c\$|=skip:no ../shared/data|")
more=(STRICT=1 TEST_SKIPS=tests/skips)
run 0 "$tmp/clean.sh" "${asks[@]}"
more=(STRICT=0 TEST_SECONDS=1)
echo 'exec sleep 1000' | write hangs
run 1 "$tmp/hangs.sh"
says 'hangs.sh: no end after 1 s'
echo "run_self: what is left behind, skipped or broken is seen"
