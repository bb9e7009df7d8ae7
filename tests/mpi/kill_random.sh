#!/bin/sh
# Kills a random rank at a random moment, many times over (see kill_random.c; one of five is stopped instead).
#   kill_random.sh PROGRAM RANKS TIMES SEED -- MPIEXEC FLAGS...
# Each time every survivor must end with HETMPI_ERR_PEER or HETMPI_ERR_TIMEOUT (between nodes also with the MPI's own
# error) within HETMPI_TIMEOUT + 1 s, later calls at once; nothing of hetmpi's stays in /dev/shm, and no process.
# Time number i has the seed SEED + i and depends on nothing else: TIMES 1 repeats one.
set -u
program=$1 ranks=$2 times=$3 first=$4
shift 5
top=$(mktemp -d) || exit 1
trap 'rm -rf "$top"' EXIT
. "$(dirname "$0")/survive.sh"
limit=$(awk "BEGIN { print ${HETMPI_TIMEOUT:?} + 1 }")
failed=0
fail() { echo "FAILED: seed $seed: $*"; failed=$((failed + 1)); }

# reports: how many survivors have left a file.
reports() { find "$folder" -name 'rank.*' ! -name '.*' | wc -l; }

seed=$first
while [ "$seed" -lt $((first + times)) ]; do
    folder=$top/job.$seed stop=
    mkdir "$folder" || exit 1
    [ $((seed % 5)) -ne 0 ] || stop=stop
    ls /dev/shm > "$folder/shm.before"
    # shellcheck disable=SC2086 # a command of two words, or none
    timeout -k 5 60 "$@" $launch_flags $out_of_group "$program" "$folder" "$seed" $stop > "$folder/output" 2>&1
    waited=0
    while [ "$(reports)" -lt $((ranks - 1)) ] && [ "$waited" -lt 50 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    before=$failed
    [ -f "$folder/death" ] || fail "nobody died"
    [ "$(reports)" -eq $((ranks - 1)) ] || fail "$(reports) of $((ranks - 1)) survivors left a report"
    for file in "$folder"/rank.*; do
        [ -e "$file" ] || continue
        read -r code seconds later text < "$file"
        case $code in
        PEER | TIMEOUT) ;;
        MPI) [ -n "${HETMPI_SIM_NODES-}" ] || fail "MPI instead of PEER or TIMEOUT: $text" ;;
        *) fail "${file##*/}: $code: $text" ;;
        esac
        awk "BEGIN { exit !($seconds <= $limit) }" || fail "${file##*/}: $seconds s, more than $limit s: $text"
        echo "${stop:-kill} ${text%%:*} $code $seconds $later" >> "$top/all"
    done
    read -r _ _ phase < "$folder/death" && echo "$phase" >> "$top/phases"
    ls /dev/shm > "$folder/shm.after"
    grep -i hetmpi "$folder/shm.after" | grep -vxFf "$folder/shm.before" && fail "left in /dev/shm"
    # The folder's name is in the command line of this job's processes alone.
    waited=0
    while pgrep -f "$folder" > /dev/null && [ "$waited" -lt 30 ]; do sleep 0.1; waited=$((waited + 1)); done
    if pgrep -f "$folder" > "$folder/left"; then
        fail "processes are left: $(tr '\n' ' ' < "$folder/left")"
        xargs kill -KILL < "$folder/left"
    fi
    if [ "$failed" -ne "$before" ]; then
        cat "$folder"/rank.* "$folder/output"
        echo "again: kill_random.sh $program $ranks 1 $seed -- $*"
    fi
    rm -rf "$folder"
    seed=$((seed + 1))
done
echo "killed $times times, seeds $first to $((seed - 1)); $failed failures"
echo "the victim was in: $(sort "$top/phases" | uniq -c | awk '{ printf "%s%s %d", (NR > 1 ? ", " : ""), $2, $1 }')"
awk '{ n[$1 " " $3]++; if ($4 > most[$1 " " $3]) most[$1 " " $3] = $4; if ($5 > later) later = $5 }
     END { for (k in n) { split(k, p, " "); printf "%s: %d survivors ended with %s, the last after %.2f s\n",
                          p[1], n[k], p[2], most[k] }
           printf "later calls took at most %.3f s\n", later }' "$top/all"
[ "$failed" -eq 0 ]
