#!/bin/bash
# Which lines of src/ the tests run: builds the presets coverage and coverage-host, runs their tests (those that show what
# others show at less cost are left out), and prints a table of both together. Ends with an error below MOST percent.
# Usage: [MOST=90] [JOBS=n] coverage.sh [--uncovered]
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

scripts/setup.sh check
for preset in coverage coverage-host; do
    cmake --preset "$preset"
    cmake --build --preset "$preset" -j "$jobs"
    find "build/$preset" -name '*.gcda' -delete
    options=(-j "$jobs" -LE "big|bench|planted")
    # Of the other backend, what is its own.
    [ "$preset" = coverage ] || options+=(-R "mem_host|island|wire|p2p|collectives")
    ctest --preset "$preset" "${options[@]}" || echo "coverage: some tests of $preset failed; their lines count as far as they ran" >&2
done
scripts/coverage.py --most "${MOST:-90}" "$@" build/coverage build/coverage-host
