#!/bin/sh
# HETMPI_PMPI: which calls are served; what a wrong value and one that differs between the ranks give.
# Usage: settings.sh PROGRAM LIBRARY MPIEXEC FLAG
set -u
program=$1 library=$2 mpiexec=$3 flag=$4
out=$(mktemp)
trap 'rm -f "$out"' EXIT
fail() { cat "$out"; echo "FAILED: $*"; exit 1; }

# served VALUE CALLS: with the two allreduces of the program, and one that is always passed on.
served() {
    HETMPI_PMPI=$1 HETMPI_LOG=info "$mpiexec" "$flag" 2 env LD_PRELOAD="$library" "$program" >"$out" 2>&1 ||
        fail "HETMPI_PMPI=$1"
    [ "$(grep -c "pmpi: $2 calls on hetmpi, $((3 - $2)) passed on" "$out")" = 2 ] || fail "HETMPI_PMPI=$1: not $2 calls"
}

served all 2
served none 0
served allreduce,bcast 2
served all,-allreduce 0
served -bcast 2
served -allreduce 0

HETMPI_PMPI=allreduce,brodcast "$mpiexec" "$flag" 2 env LD_PRELOAD="$library" "$program" >"$out" 2>&1 &&
    fail "a wrong value was taken"
grep -q 'HETMPI_PMPI = "allreduce,brodcast".*reduce_scatter_block' "$out" || fail "a wrong value is not explained"

"$mpiexec" "$flag" 1 env HETMPI_PMPI=allreduce LD_PRELOAD="$library" "$program" : \
           "$flag" 1 env HETMPI_PMPI=all LD_PRELOAD="$library" "$program" >"$out" 2>&1 &&
    fail "values that differ were taken"
grep -q 'PMPI' "$out" || fail "values that differ are not explained"
