#!/bin/sh
# exit() without MPI_Finalize: every process ends by itself, with its own status, and nothing is left in /dev/shm.
#   inputs_exit.sh PROGRAM RANKS -- MPIEXEC FLAGS...
set -u
program=$1 ranks=$2
shift 3
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
# mpiexec must not end the others when it sees the first one leave.
case $("$1" --version 2>&1) in
*"Open MPI"* | *OpenRTE* | *PRRTE*) OMPI_MCA_orte_enable_recovery=1 && export OMPI_MCA_orte_enable_recovery ;;
*HYDRA* | *Hydra*) set -- "$@" -disable-auto-cleanup setsid -w ;; # as kill.sh does
*) echo "inputs_exit.sh: skipped: do not know how $1 keeps a job alive when a rank leaves" && exit 77 ;;
esac
# What is not freed by exit() is no leak.
ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0" && export ASAN_OPTIONS
# shellcheck disable=SC2016 # for the inner shell
timeout -k 5 60 "$@" sh -c '"$0" exit; echo $? > "$1/$$"' "$program" "$folder" > "$folder/output" 2>&1
echo "mpiexec ended with $? (its verdict does not count)"
ended=$(cat "$folder"/[0-9]* 2> /dev/null | grep -c '^0$')
if [ "$ended" -ne "$ranks" ]; then
    echo "FAILED: $ended of $ranks processes ended by themselves with 0; the statuses:"
    cat "$folder"/[0-9]*
    cat "$folder/output"
    exit 1
fi
if find /dev/shm -iname '*hetmpi*' | grep .; then
    echo "FAILED: left in /dev/shm"
    exit 1
fi
