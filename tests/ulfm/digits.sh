#!/bin/sh
# Training that loses ranks must end with the same bits as a run that starts with the survivors, at the step from which
# these went on.
#   digits.sh PROGRAM DATA -- MPIEXEC FLAGS... -n
set -u
program=$1 data=$2
shift 3
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0

# run NAME RANKS VENDORS ARGUMENT...: the hash that it ends with, in $hash.
run() {
    name=$1 ranks=$2 vendors=$3
    shift 3
    # shellcheck disable=SC2086 # mpiexec and its flags
    HETMPI_SIM_VENDORS=$vendors HETMPI_TIMEOUT=10 timeout -k 5 90 $launch "$ranks" "$program" --data "$data" --epochs 6 "$@" \
        > "$folder/$name" 2>&1
    code=$?
    hash=$(sed -n 's/.* weights \([0-9a-f]*\), the same on all ranks.*/\1/p' "$folder/$name")
    echo "$name, $ranks ranks: exit code $code, weights ${hash:-none}"
    if [ "$code" -ne 0 ] || [ -z "$hash" ]; then
        cat "$folder/$name"
        failed=1
    fi
}

launch=$*
run whole 4 nvidia,amd,nvidia,amd
whole=$hash
# One dies; then, in another run, two, one after the other. The last save is where the survivors went on.
run one_lost 4 nvidia,amd,nvidia,amd --die 1:23 --save "$folder/state"
lost=$hash
run one_again 3 nvidia,nvidia,amd --from "$folder/state"
[ "$hash" = "$lost" ] || { echo "FAILED: the survivors' weights are $lost"; failed=1; }
[ "$lost" != "$whole" ] || { echo "FAILED: as if nobody had died: other shards give other bits"; failed=1; }
run two_lost 4 nvidia,amd,nvidia,amd --die 3:17 --die 0:41 --save "$folder/state"
lost=$hash
run two_again 2 amd,nvidia --from "$folder/state"
[ "$hash" = "$lost" ] || { echo "FAILED: the survivors' weights are $lost"; failed=1; }
exit "$failed"
