#!/bin/sh
# A rank is killed in a loop of allreduces or messages: starts kill.c so that the survivors live on, and judges by their files.
#   kill.sh PROGRAM RANKS VICTIM small|large|messages LIMIT_S -- MPIEXEC FLAGS...
# Passes when every survivor reported HETMPI_ERR_PEER or HETMPI_ERR_TIMEOUT, naming the victim, within LIMIT_S of its
# death, and nothing of hetmpi's is left in /dev/shm and among the processes.
set -u
program=$1 ranks=$2 victim=$3 size=$4 limit=$5
shift 6
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

case $("$1" --version 2>&1) in
*"Open MPI"* | *OpenRTE* | *PRRTE*) OMPI_MCA_orte_enable_recovery=1 && export OMPI_MCA_orte_enable_recovery ;;
*HYDRA* | *Hydra*) set -- "$@" -disable-auto-cleanup ;;
*) echo "kill.sh: skipped: do not know how $1 keeps a job alive when a rank dies" && exit 77 ;;
esac

ls /dev/shm > "$folder/shm.before"
timeout -k 5 60 "$@" "$program" "$folder" "$size" "$victim" > "$folder/output" 2>&1
echo "mpiexec ended with $? (its verdict does not count)"

failed=0
fail() { echo "FAILED: $*"; failed=1; }
[ -f "$folder/death" ] || fail "rank $victim did not die"
rank=0
while [ "$rank" -lt "$ranks" ]; do
    if [ "$rank" -ne "$victim" ]; then
        if [ -f "$folder/rank.$rank" ]; then
            read -r code seconds message < "$folder/rank.$rank"
            echo "rank $rank: $code after $seconds s: $message"
            case $code in PEER | TIMEOUT) ;; *) fail "rank $rank: $code instead of PEER or TIMEOUT" ;; esac
            case "$message " in
            *"rank $victim"[!0-9]*) ;;
            *) fail "rank $rank: the message does not name rank $victim" ;;
            esac
            awk "BEGIN { exit !($seconds <= $limit) }" || fail "rank $rank: $seconds s, more than $limit s"
        else
            fail "rank $rank left no report: it hung, crashed or was killed"
        fi
    fi
    rank=$((rank + 1))
done
# MPI's own segments stay behind after a kill; only hetmpi's matter here.
ls /dev/shm | grep -i hetmpi | grep -vxFf "$folder/shm.before" && fail "left in /dev/shm"
[ "$failed" -eq 0 ] || cat "$folder/output"
exit "$failed"
