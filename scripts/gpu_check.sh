#!/bin/bash
# Runs the GPU tests and benchmarks of a build on the machine at hand, with whatever GPUs it has, and prints one table;
# exits non-zero when anything was wrong. Two ranks or more may share a GPU: then once as they are, taking turns, and once
# under MPS, where their work runs together.
# With HETMPI_TEST_PYTHON=PYTHON, one that has torch and the package hetmpi on this build, the process group backend too.
# Usage: gpu_check.sh [BUILD]   (default build/cuda; the build may have been made on another machine)
set -uo pipefail
build=$(cd "${1:-$(dirname "$0")/../build/cuda}" && pwd) || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export LD_LIBRARY_PATH=$build:$build/lib:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}
export HETMPI_TIMEOUT=${HETMPI_TIMEOUT:-20}
mpirun=${MPIRUN:-mpirun}
programs=(types_ops ops collectives collectives_v bits mismatch p2p persistent comms lifecycle)
failed=0 output=$(mktemp)
trap 'rm -f "$output"' EXIT

gpus=$(nvidia-smi -L 2>/dev/null | grep -c ^GPU)
echo "GPUs: $gpus; $(nvidia-smi -L 2>/dev/null | head -1)"
[ "$gpus" -gt 0 ] || { echo "gpu_check: skipped: no GPU here"; exit 77; }

# test ISLANDS PROGRAM [ARG ...]: one rank for each island label.
test_one() {
    local islands=$1 program=$2 commas=${1//[^,]/} start=$SECONDS status
    local ranks=$((${#commas} + 1))
    HETMPI_TEST_RANKS=$ranks HETMPI_ISLANDS=$islands timeout 120 "$mpirun" -n $ranks "$build/tests/mpi/$program" \
        "${@:3}" >"$output" 2>&1
    status=$?
    printf '%-16s islands %-6s %s (%d s)\n' "$program" "$islands" \
           "$([ $status = 0 ] && echo passed || echo "FAILED, exit status $status")" $((SECONDS - start))
    [ $status = 0 ] || { failed=$((failed + 1)); head -c 2000 "$output"; }
}

# bench ISLANDS RANKS NAME [OPTION ...]
bench() {
    echo "-- $3, islands $1, ${*:4}"
    HETMPI_ISLANDS=$1 timeout 120 "$mpirun" -n "$2" "$build/benchmarks/hetmpi_$3_bench" -d device "${@:4}" >"$output" 2>&1 ||
        { failed=$((failed + 1)); echo "FAILED"; }
    grep -v '^#' "$output"
}

all_tests() {
    for islands in a,b a,a a,b,a; do
        for program in "${programs[@]}"; do
            test_one $islands "$program"
        done
    done
}

echo "== tests"
all_tests
mps=
if [ "$gpus" = 1 ] && command -v nvidia-cuda-mps-control >/dev/null; then
    # Under MPS a process has two hardware queues by default: a stream that waits would hold up the work it waits for.
    export CUDA_MPS_PIPE_DIRECTORY=${TMPDIR:-/tmp}/mps CUDA_MPS_LOG_DIRECTORY=${TMPDIR:-/tmp}/mps
    export CUDA_DEVICE_MAX_CONNECTIONS=32
    nvidia-cuda-mps-control -d && mps=1
    echo "== tests, under MPS"
    all_tests
fi
echo "== benchmarks${mps:+, under MPS}"
for type in float32 bfloat16; do
    bench a,b 2 allreduce --type=$type -m 8:256M
    bench a,a 2 allreduce --type=$type -m 8:256M
done
for name in bcast allgather reduce_scatter_block alltoall; do
    bench a,b 2 $name -m 64M:64M
    bench a,a 2 $name -m 64M:64M
done
bench a,b 2 latency -m 8:64M
if [ -n "${HETMPI_TEST_PYTHON:-}" ]; then
    echo "== torch${mps:+, under MPS}"
    HETMPI_ISLANDS=a,b timeout 300 "$mpirun" -n 2 "$HETMPI_TEST_PYTHON" \
        "$(dirname "$0")/../integrations/python/tests/torch_gpu.py" 2>&1 || failed=$((failed + 1))
fi
[ -z "$mps" ] || echo quit | nvidia-cuda-mps-control
echo "gpu_check: $failed failed"
[ "$failed" = 0 ]
