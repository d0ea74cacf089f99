#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The examples of proto/PROTOCOL.md against a real detd.
set -eu
exec python3 tests/e2e/protocol_examples.py "${DETD_BUILD:-build}"
