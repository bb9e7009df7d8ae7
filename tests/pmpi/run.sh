#!/bin/sh
# Runs a program of MPI alone with the drop-in, and compares what the drop-in says it did with what the program says it
# should have done. Usage: run.sh EXPECTED-RANKS PROGRAM [ARGUMENT...] -- LIBRARY|linked MPIEXEC FLAG RANKS [FLAG...]
set -u
ranks=$1 program=$2
shift 2
arguments=
while [ "$1" != -- ]; do arguments="$arguments $1"; shift; done
library=$2
shift 2
[ "$library" = linked ] && preload= || preload=LD_PRELOAD=$library
out=$(mktemp)
trap 'rm -f "$out"' EXIT
# env, not a variable of mpiexec's own: that would load the library too. The words of $arguments are words on purpose.
# shellcheck disable=SC2086
HETMPI_LOG=info "$@" env $preload "$program" $arguments >"$out" 2>&1
code=$?
grep -v '^hetmpi\[[0-9]*\] info:\|^expected\[' "$out"
[ $code = 0 ] || { echo "exit code $code"; exit 1; }
said=$(sed -n 's/^hetmpi\(\[[0-9]*\]\) info: \(pmpi: .*\)/\1 \2/p' "$out" | sort)
expected=$(sed -n 's/^expected\(\[[0-9]*\]\): /\1 /p' "$out" | sort)
if [ "$said" != "$expected" ] || [ "$(echo "$said" | grep -c pmpi)" != "$ranks" ]; then
    echo "the drop-in counted:" && echo "$said"
    echo "the program expected, on $ranks ranks:" && echo "$expected"
    exit 1
fi
