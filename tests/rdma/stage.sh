#!/bin/bash
# The tests of the verbs wire, in the guest: run_stage.sh starts this there, with RDMA_BUILD, the build tree.
#   stage.sh [PART...]    these parts, or all; a line for each, the log of one that failed, and the sums as ctest writes them
#   stage.sh -p PART      one part, as it is
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$RDMA_BUILD
# Name of each part, and most seconds; twice as many on a machine that does other things too (RDMA_PATIENCE).
parts='pingpong:30 raw:60 collectives_1_1:90 collectives_2_2:90 collectives_3_1:90 messages:60 fuzz:90 depth:60 memlock:60
       netem:60 moments:120 return:60 lost_error:40 lost_mpi:40 killed:60 idle:40'

export HETMPI_WIRE=verbs HETMPI_TIMEOUT=${HETMPI_TIMEOUT:-30}

# on_hosts N1 N2 PROGRAM...: ranks on both hosts, devices of one vendor on each.
on_hosts() {
    local vendors=nvidia i
    for ((i = 1; i < $1; i++)); do vendors+=,nvidia; done
    for ((i = 0; i < $2; i++)); do vendors+=,amd; done
    echo "+ $*"
    HETMPI_SIM_VENDORS=$vendors HETMPI_TEST_RANKS=$(($1 + $2)) "$here/mpirun_hosts.sh" "$@"
}

# ipv4_gid DEVICE: the number of its RoCE v2 GID that is an IPv4 address.
ipv4_gid() {
    local port=/sys/class/infiniband/$1/ports/1 i
    for i in $(seq 0 15); do
        [ "$(cat "$port/gid_attrs/types/$i" 2>/dev/null)" = "RoCE v2" ] || continue
        case $(cat "$port/gids/$i") in 0000:0000:0000:0000:0000:ffff:*) echo "$i" && return ;; esac
    done
    return 1
}

heal() {
    local i end
    for ((i = 0; i < RDMA_RAILS; i++)); do
        for end in a b; do
            tc qdisc del dev "v$end$i" root 2>/dev/null
            ip link set "v$end$i" up
        done
        rdma_route "$i"
    done
}

# Takes orders from rail_loss, and makes the faults.
faults_begin() {
    export RDMA_FAULTS=/tmp/faults RDMA_HEALED=/tmp/healed
    mkfifo "$RDMA_FAULTS" "$RDMA_HEALED"
    while read -r kind rail; do
        echo "fault: $kind $rail" >&2
        case $kind in
        down_here) ip link set "va$rail" down ;;
        down_there) ip link set "vb$rail" down ;;
        silent_here) tc qdisc replace dev "va$rail" root netem loss 100% ;;
        silent_there) tc qdisc replace dev "vb$rail" root netem loss 100% ;;
        silent)
            tc qdisc replace dev "va$rail" root netem loss 100%
            tc qdisc replace dev "vb$rail" root netem loss 100%
            ;;
        heal)
            heal
            echo healed >&4
            ;;
        esac
    done <"$RDMA_FAULTS" 4>"$RDMA_HEALED" &
    faults_pid=$!
    trap 'kill $faults_pid 2>/dev/null' EXIT
}

rail_loss() { faults_begin && on_hosts 1 1 "$build/tests/rdma/rail_loss" "$@"; }

collectives() {
    on_hosts "$1" "$2" "$build/tests/mpi/collectives" multiple && on_hosts "$1" "$2" "$build/tests/mpi/collectives_v" multiple
}

part_pingpong() {
    local i server
    for ((i = 0; i < RDMA_RAILS; i++)); do
        ibv_rc_pingpong -d "rxb$i" -g "$(ipv4_gid "rxb$i")" -n 100 -c &
        server=$!
        sleep 1
        ibv_rc_pingpong -d "rxa$i" -g "$(ipv4_gid "rxa$i")" -n 100 -c localhost && wait "$server" || return 1
    done
}
part_raw() {
    local raw=$build/benchmarks/raw_verbs
    on_hosts 1 1 "$raw" latency 8 64 0.2 && on_hosts 1 1 "$raw" bw 65536 1048576 0.2 &&
        on_hosts 1 1 "$raw" bibw 65536 1048576 0.2
}
part_collectives_1_1() { collectives 1 1; }
part_collectives_2_2() { collectives 2 2; }
part_collectives_3_1() { collectives 3 1; }
part_messages() {
    on_hosts 1 1 "$build/tests/mpi/p2p" && on_hosts 2 1 "$build/tests/mpi/p2p_random" 5 "${RDMA_SEED:-1}" multiple
}
part_fuzz() { on_hosts 2 1 "$build/tests/mpi/fuzz_collectives" "${RDMA_FUZZ_SECONDS:-20}" "${RDMA_SEED:-1}" multiple; }
part_depth() { HETMPI_QUEUE_DEPTH=8 HETMPI_CHUNK=4K HETMPI_STAGING=64K on_hosts 1 1 "$build/tests/mpi/p2p_random" 4 7 multiple; }
# Root may lock what it likes: without that capability the limit counts.
part_memlock() {
    ulimit -l 64
    setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "$0" -p memlocked
}
part_memlocked() { on_hosts 1 1 "$build/tests/mpi/p2p_random" 4 11 multiple; }
part_netem() {
    local i end
    for ((i = 0; i < RDMA_RAILS; i++)); do
        for end in a b; do
            tc qdisc replace dev "v$end$i" root netem delay 1ms reorder 90% 50% loss 1%
        done
    done
    on_hosts 1 1 "$build/tests/mpi/p2p_random" 3 13 multiple
}
part_moments() { rail_loss moments "${RDMA_ROUNDS:-20}" "${RDMA_SEED:-1}"; }
part_return() { rail_loss return; }
part_lost_error() { HETMPI_RAILS_LOST=error rail_loss all; }
part_lost_mpi() { HETMPI_RAILS_LOST=mpi rail_loss all; }
# The system's python starts faster than one from somewhere else would, here.
part_killed() {
    PATH=/usr/bin:$PATH HETMPI_SIM_NODES=0,0,1 HETMPI_SIM_VENDORS=nvidia,nvidia,amd HETMPI_TIMEOUT=5 \
        sh "$here/../mpi/kill.sh" "$build/tests/mpi/kill" 3 2 large 15 -- "$here/mpirun_hosts.sh" 2 1
}
part_idle() { on_hosts 1 1 "$build/tests/rdma/idle" 10; }

if [ "${1:-}" = -p ]; then
    "part_$2"
    exit
fi
failed=0 ran=0
for part in $parts; do
    name=${part%:*} limit=$((${part#*:} * ${RDMA_PATIENCE:-2}))
    [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
    log=$RDMA_OUT/$name.log
    start=${EPOCHREALTIME/./}
    timeout -k 5 "$limit" "$0" -p "$name" >"$log" 2>&1
    status=$?
    took=$(((${EPOCHREALTIME/./} - start) / 10000))
    ran=$((ran + 1))
    verdict=Passed
    [ $status = 0 ] || verdict='***Failed'
    [ $status != 124 ] || verdict='***Timeout'
    printf '%-28s %-12s %4d.%02d s\n' "rdma.$name" "$verdict" $((took / 100)) $((took % 100))
    if [ $status != 0 ]; then
        failed=$((failed + 1))
        sed 's/^/    /' "$log" | tail -60
    fi
    heal   # after a part that broke off, too
    rm -f /tmp/faults /tmp/healed
done
[ $ran != 0 ] || { echo "stage: no such part: $*" >&2; exit 2; }
echo "$(((ran - failed) * 100 / ran))% tests passed, $failed tests failed out of $ran"
[ $failed = 0 ]
