#!/bin/sh
# Reports and dumps: starts report.c and reads the JSON files that it leaves.
#   report.sh PROGRAM LAST seen|silent signal|file -- MPIEXEC FLAGS...
# LAST: the last rank, which is the one to blame. silent: it is alone on its node, so nobody can answer for it while it
# makes no call of hetmpi. How rank 0 is asked for a dump: by a signal or a file.
set -u
program=$1 last=$2 sight=$3 how=$4
shift 5
here=$(dirname "$0")
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
HETMPI_REPORT=$folder/report.json
HETMPI_DUMP=SIGUSR2
[ "$how" = signal ] || HETMPI_DUMP=$folder/ask
export HETMPI_REPORT HETMPI_DUMP
failed=0

# check MODE CHECK...
check() {
    mode=$1
    shift
    python3 "$here/check_report.py" "$folder/$mode.json" "$@" || failed=1
}

if ! timeout -k 5 100 "$@" "$program" "$folder" "$how" > "$folder/output" 2>&1; then
    echo "FAILED: the job"
    failed=1
fi
if [ "$sight" = seen ]; then
    set -- "rank.$last.state=running" "rank.$last.doing=not in a hetmpi call, last finished call 2" \
        "rank.$last.in_call=False" "rank.$last.last_finished=2"
else
    set -- "rank.$last.state=no answer"
fi
check dump why=dump suspects="$last" number=3 rank."$last".suspect="has not called it" "$@"
grep -q "rank $last.*has not called it" "$folder/output" || { echo "FAILED: no dump in the log"; failed=1; }
check other why=mismatch suspects="$last" number=3 rank.0.call_collective=allreduce \
    rank."$last".suspect="called something else" rank."$last".call_collective=bcast message="*kind of rank $last differs*"
check absent why=timeout suspects="$last" number=3 rank."$last".suspect="has not called it" rank.0.in_call=True \
    rank.0.waits_in=collective rank.0.call_collective=allreduce rank.0.call_count=70001 \
    message="allreduce (call 3*waiting for rank $last*" "$@"
check message why=timeout suspects="$last" rank."$last".waits_in=recv
check elsewhere why=timeout suspects="$last" rank."$last".waits_in=elsewhere rank."$last".elsewhere=bcast
[ "$failed" -eq 0 ] || cat "$folder/output"
exit "$failed"
