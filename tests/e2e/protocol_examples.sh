#!/usr/bin/env bash
# The examples of proto/PROTOCOL.md against a real detd.
set -eu
exec python3 tests/e2e/protocol_examples.py "${DETD_BUILD:-build}"
