#!/bin/sh
# The random differential test must find planted faults: runs it with each, and demands that it fails, says where, and
# how to run that again. Without a fault the same program passes.
#   fuzz_fault.sh PROGRAM FAULT... -- MPIEXEC FLAGS...
set -u
program=$1
shift
faults=
while [ "$1" != "--" ]; do
    faults="$faults $1"
    shift
done
shift
failed=0
for fault in none $faults; do
    # A fixed seed: whether a fault is found must not be luck. The time bound is what a fault may hide for.
    seconds=30
    [ "$fault" != none ] || seconds=1
    output=$(HETMPI_TEST_FAULT=$fault timeout -k 5 100 "$@" "$program" "$seconds" 1 2>&1)
    status=$?
    if [ "$fault" = none ]; then
        [ "$status" -eq 0 ] && continue
        echo "FAILED: the program fails without a fault:" && echo "$output" | tail -30 && failed=1 && continue
    fi
    case $output in
    *"run this round again: env "*"HETMPI_TEST_FAULT=$fault"*) said=yes ;;
    *) said=no ;;
    esac
    if [ "$status" -eq 0 ] || [ "$status" -eq 124 ] || [ "$said" = no ]; then
        echo "FAILED: fault $fault: status $status, replay shown: $said"
        echo "$output" | tail -30
        failed=1
    else
        echo "$fault: found: $(echo "$output" | grep -m1 'seed [0-9]*, case' | cut -c1-160)"
    fi
done
exit "$failed"
