#!/bin/sh
# A rank is killed in a loop of allreduces or messages: starts kill.c so that the survivors live on, and judges by their
# files.
#   kill.sh PROGRAM RANKS VICTIM small|large|messages LIMIT_S [stop] -- MPIEXEC FLAGS...
# Passes when every survivor reported HETMPI_ERR_PEER or HETMPI_ERR_TIMEOUT, naming the victim, within LIMIT_S of its
# death, the reports in JSON name it too, and nothing of hetmpi's is left in /dev/shm.
set -u
program=$1 ranks=$2 victim=$3 size=$4 limit=$5 stop=
shift 5
[ "$1" = -- ] || { stop=$1; shift; }
shift
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

. "$(dirname "$0")/survive.sh"

# reports: how many survivors have left a file.
reports() { find "$folder" -name 'rank.*' ! -name '.*' | wc -l; }

HETMPI_REPORT=$folder/report.%r && export HETMPI_REPORT
ls /dev/shm > "$folder/shm.before"
# shellcheck disable=SC2086 # a command of two words, or none
timeout -k 5 60 "$@" $launch_flags $out_of_group "$program" "$folder" "$size" "$victim" $stop > "$folder/output" 2>&1
echo "mpiexec ended with $? (its verdict does not count)"
waited=0
while [ "$(reports)" -lt $((ranks - 1)) ] && [ "$waited" -lt $((limit * 10)) ]; do
    sleep 0.1
    waited=$((waited + 1))
done

failed=0
fail() { echo "FAILED: $*"; failed=1; }
[ -f "$folder/death" ] || fail "rank $victim did not die"
rank=0
while [ "$rank" -lt "$ranks" ]; do
    if [ "$rank" -ne "$victim" ]; then
        if [ -f "$folder/rank.$rank" ]; then
            read -r code seconds message < "$folder/rank.$rank"
            echo "rank $rank: $code after $seconds s: $message"
            case $code in
            PEER | TIMEOUT) ;;
            # Between nodes the MPI itself may see the death first, and says so.
            MPI) [ -n "${HETMPI_SIM_NODES-}" ] || fail "rank $rank: MPI instead of PEER or TIMEOUT" ;;
            *) fail "rank $rank: $code instead of PEER or TIMEOUT" ;;
            esac
            case "$message " in
            *"rank $victim"[!0-9]* | *"peer $victim"[!0-9]*) ;;
            *) fail "rank $rank: the message does not name rank $victim" ;;
            esac
            awk "BEGIN { exit !($seconds <= $limit) }" || fail "rank $rank: $seconds s, more than $limit s"
        else
            fail "rank $rank left no report: it hung, crashed or was killed"
        fi
    fi
    rank=$((rank + 1))
done
told=0
for file in "$folder"/report.*; do
    [ -e "$file" ] || continue
    why=peer
    state=ended
    [ -z "$stop" ] || { why=timeout; state=stopped; }
    python3 "$(dirname "$0")/check_report.py" "$file" why="$why" suspects="has:$victim" \
        rank."$victim".state="$state" 2>> "$folder/output" && told=1
done
# What MPI itself saw first is no report of ours.
[ "$told" -eq 1 ] || [ -n "${HETMPI_SIM_NODES-}" ] || fail "no report in JSON names rank $victim"
# MPI's own segments stay behind after a kill; only hetmpi's matter here.
ls /dev/shm > "$folder/shm.after"
grep -i hetmpi "$folder/shm.after" | grep -vxFf "$folder/shm.before" && fail "left in /dev/shm"
[ "$failed" -eq 0 ] || cat "$folder/output"
exit "$failed"
