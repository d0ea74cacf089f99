#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The list of faults that make prove and detctl diff must catch: the text of each
# stands in its file exactly once.
set -eu
cd "$(dirname "$0")"
exec python3 prove/planted.py --check
