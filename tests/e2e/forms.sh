#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # One data set in the forms that data sets come in, and what each job makes of it: the same bits.
set -eu
cd "$(dirname "$0")/../.."
[ -d ../shared/data/bccd ] || { echo "skip: no ../shared/data"; exit 0; }
exec python3 tests/e2e/forms.py "${DETD_BUILD:-build}"
