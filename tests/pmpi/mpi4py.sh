#!/bin/bash
# mpi4py's own test suite, from its source distribution, with the drop-in. The package is fetched and built once, into
# WORK; where that cannot be done (no network, no compiler for Python) the test is skipped, with the reason.
# The suite must pass, and must really run on hetmpi: the drop-in's count says so.
# Usage: mpi4py.sh PYTHON WORK MPICC LIBRARY|none LEAST MPIEXEC FLAG RANKS -- [OPTION of mpi4py's test/main.py ...]
# LEAST: calls that hetmpi must have served, on all ranks together.
set -uo pipefail
version=4.1.2
python=$1 work=$2 mpicc=$3 library=$4 least=$5
shift 5
launch=()
while [ "$1" != -- ]; do launch+=("$1"); shift; done
shift

skip() { echo "skipped: $*"; exit 77; }

build() {
    local log=$work/build.log
    rm -rf "$work" && mkdir -p "$work" || return 1
    "$python" -m venv "$work/venv" >"$log" 2>&1 || { echo "python has no venv"; return 1; }
    local pip=("$work/venv/bin/python" -m pip --disable-pip-version-check)
    timeout 120 "${pip[@]}" download -q --no-deps --no-binary mpi4py -d "$work" "mpi4py==$version" >>"$log" 2>&1 ||
        { echo "the source distribution of mpi4py $version cannot be had (see $log)"; return 1; }
    tar -xzf "$work/mpi4py-$version.tar.gz" -C "$work" || return 1
    # Only the suite's own time counts here: no optimisation.
    MPI4PY_BUILD_MPICC=$mpicc MPICC=$mpicc CFLAGS=-O0 timeout 500 "${pip[@]}" install -q --no-deps "$work/mpi4py-$version" \
        >>"$log" 2>&1 || { echo "mpi4py $version cannot be built (see $log)"; return 1; }
    touch "$work/built"
}

exec 9>"$work.lock" && flock 9
if [ ! -e "$work/built" ]; then
    reason=$(build) || skip "$reason"
fi
flock -u 9

preload=() log=$work/run.$$.log
trap 'rm -f "$log"' EXIT
[ "$library" = none ] || preload=(HETMPI_LOG=info "LD_PRELOAD=$library")
cd "$work/mpi4py-$version" || exit 1
"${launch[@]}" env "${preload[@]}" HETMPI_TIMEOUT=100 "$work/venv/bin/python" test/main.py "$@" >"$log" 2>&1
code=$?
grep -v '^hetmpi\[[0-9]*\] info:' "$log" | tail -60
[ $code = 0 ] || { echo "FAILED: exit code $code"; exit 1; }
[ "$library" != none ] || exit 0
served=$(sed -n 's/.*pmpi: \([0-9]*\) calls on hetmpi, .*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
passed=$(sed -n 's/.*pmpi: [0-9]* calls on hetmpi, \([0-9]*\) passed on/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
echo "on hetmpi: $served calls; passed on: $passed"
[ "$served" -ge "$least" ] || { echo "FAILED: at least $least were expected"; exit 1; }
