#!/usr/bin/env bash
# The lists of faults that `make mutants` puts into the code: the text of each stands in its file exactly once.
set -eu
cd "$(dirname "$0")"
exec python3 mutants/faults.py
