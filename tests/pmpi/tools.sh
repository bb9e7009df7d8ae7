#!/bin/sh
# The drop-in beside another tool of the same kind, in both orders: the program's results are right, and the tool sees
# its calls: those that hetmpi leaves to MPI where the drop-in comes first, all where the tool does.
# Usage: tools.sh PROGRAM LIBRARY TOOL MPIEXEC FLAG
set -u
program=$1 library=$2 tool=$3 mpiexec=$4 flag=$5
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# check ORDER ALLREDUCES: both libraries preloaded in this order; the tool must see so many allreduces on each rank.
check() {
    HETMPI_LOG=info "$mpiexec" "$flag" 2 env LD_PRELOAD="$1" "$program" >"$out" 2>&1 ||
        { cat "$out"; echo "FAILED: LD_PRELOAD=$1"; exit 1; }
    for line in "tool\[0\]: $2 allreduces, 1 sends" "tool\[1\]: $2 allreduces, 0 sends"; do
        grep -q "$line" "$out" || { cat "$out"; echo "FAILED: LD_PRELOAD=$1: not found: $line"; exit 1; }
    done
}

check "$library $tool" 1
grep -q 'pmpi: 2 calls on hetmpi, 1 passed on' "$out" || { cat "$out"; echo "FAILED: hetmpi had no calls"; exit 1; }
check "$tool $library" 3
