#!/bin/sh
# Under MPI's default error handler a wrong call stops the program, with the message, as MPI's own calls do.
#   fatal.sh PROGRAM -- MPIEXEC FLAGS...
set -u
program=$1
shift 2
output=$(timeout -k 5 60 "$@" "$program" fatal 2>&1)
status=$?
case $output in
*"went on"*) echo "FAILED: the program went on after a wrong root" && exit 1 ;;
esac
if [ "$status" -eq 0 ] || [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
    echo "FAILED: mpiexec ended with $status"
    echo "$output"
    exit 1
fi
case $output in
*12345*) echo "stopped with $status, and the message names the root" ;;
*) echo "FAILED: no message that names the root 12345:" && echo "$output" && exit 1 ;;
esac
