#!/bin/sh
# Settings are checked strictly: starts settings.c with good, bad and differing ones.
#   settings.sh PROGRAM -- MPIEXEC NUMPROC_FLAG FLAGS...
set -u
program=$1
shift 2
mpiexec=$1 n=$2
shift 2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0

# shellcheck disable=SC2086 # flags, $3 and $4 are lists of words
# job CODE TEXT A B: two ranks, rank 0 with the variables A, rank 1 with B (words NAME=value).
job() {
    HETMPI_TEST_RANKS=2 timeout -k 5 60 "$mpiexec" "$n" 1 $flags env $3 "$program" "$1" "$2" : \
        "$n" 1 $flags env $4 "$program" "$1" "$2" > "$folder/output" 2>&1
    status=$?
    if [ "$status" -eq 0 ]; then
        echo "ok: [$3] [$4] -> $1 $2"
    else
        echo "FAILED ($status): [$3] [$4] should give $1 with \"$2\""
        cat "$folder/output"
        failed=1
    fi
}
flags=$*
unset HETMPI_CONFIG

job 0 "" HETMPI_CHUNK=64K HETMPI_CHUNK=65536
job CONFIG HETMPI_NO_SUCH_NAME HETMPI_NO_SUCH_NAME=1 HETMPI_NO_SUCH_NAME=1
job CONFIG HETMPI_CHUNKS HETMPI_LOG=warn HETMPI_CHUNKS=4K
job CONFIG pigeon HETMPI_WIRE=pigeon HETMPI_WIRE=auto
job CONFIG CHUNK HETMPI_CHUNK=64K HETMPI_CHUNK=128K
job CONFIG WIRE_PRECISION HETMPI_WIRE_PRECISION=exact HETMPI_LOG=warn
job CONFIG ISLANDS HETMPI_ISLANDS=a HETMPI_ISLANDS=a
job 0 "" HETMPI_TIMEOUT=5 HETMPI_TIMEOUT=7s # may differ: each rank's own patience

printf '# a comment\nCHUNK = 64K\nTIMEOUT = 20\n' > "$folder/good.conf"
printf 'CHUNK = 64K\n\nCHUNCK = 1\n' > "$folder/bad.conf"
job 0 "" HETMPI_CONFIG="$folder/good.conf" HETMPI_CONFIG="$folder/good.conf"
job CONFIG "bad.conf:3" HETMPI_CONFIG="$folder/bad.conf" HETMPI_CONFIG="$folder/bad.conf"
job CONFIG none.conf HETMPI_LOG=warn HETMPI_CONFIG="$folder/none.conf"
exit "$failed"
