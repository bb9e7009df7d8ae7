#!/bin/sh
# Faults of the simulated device in processes that have nothing yet: pools, streams and mappings are made for the first
# time when the operation fails. Each fault is a job of its own.
#   faults_cold.sh PROGRAM all|FAULT... -- MPIEXEC FLAGS...     FAULT: kind@N%RANK
# all: every rank, every operation that a first communicator comes to.
set -u
program=$1
shift
faults=
while [ "$1" != -- ]; do faults="$faults $1"; shift; done
shift
if [ "$faults" = " all" ]; then
    faults=
    rank=0
    while [ "$rank" -lt "${HETMPI_TEST_RANKS:?}" ]; do
        for kind in alloc:4 pin:26 ipc:3 stream:15; do
            number=1
            while [ "$number" -le "${kind#*:}" ]; do
                faults="$faults ${kind%:*}@$number%$rank"
                number=$((number + 1))
            done
        done
        rank=$((rank + 1))
    done
fi
failed=0
runs=0
for fault in $faults; do
    HETMPI_SIM_FAULT=$fault timeout -k 5 60 "$@" "$program" cold > "${TMPDIR:-/tmp}/faults_cold.$$" 2>&1
    code=$?
    runs=$((runs + 1))
    [ "$code" -eq 0 ] && continue
    failed=$((failed + 1))
    echo "FAILED: HETMPI_SIM_FAULT=$fault: exit code $code"
    cat "${TMPDIR:-/tmp}/faults_cold.$$"
done
rm -f "${TMPDIR:-/tmp}/faults_cold.$$"
echo "$runs faults, $failed failed"
[ "$failed" -eq 0 ] && [ "$runs" -gt 0 ]
