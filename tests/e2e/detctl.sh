#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # detctl as users and scripts meet it: exit codes, JSON, CSV against SQL, Ctrl-C, a daemon or a supervisor that dies while somebody waits.
set -eu
exec python3 tests/e2e/detctl.py "${DETD_BUILD:-build}"
