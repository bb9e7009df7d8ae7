#!/bin/bash
# Tests the verbs wire on Soft-RoCE, in one boot of the guest (scripts/rdma_vm.sh): run_stage.sh [-b BUILD] [-t SECONDS] [PART...]
# BUILD: a build tree with simulated devices (build/sim); PART: as in stage.sh. The parts' logs: BUILD/tests/rdma/logs.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export RDMA_BUILD=$root/build/sim
seconds=480
while getopts b:t: option; do
    case $option in
    b) RDMA_BUILD=$(cd "$OPTARG" && pwd) ;;
    t) seconds=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
cd "$root"
exec scripts/rdma_vm.sh -t "$seconds" -o "$RDMA_BUILD/tests/rdma/logs" tests/rdma/stage.sh "$@"
