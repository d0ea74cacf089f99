#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/harness/run.sh BUILD TEST... - runs cmocka programs and *.sh tests side by
# side and closes with "N passed, N failed, N skipped"; run.py says the rest.
exec python3 "$(dirname "$0")/run.py" "$@"
