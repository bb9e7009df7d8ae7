#!/bin/bash
# The main job: trains a small network on handwritten digits, on three NVIDIA-like and two AMD-like simulated devices
# whose gradients hetmpi_allreduce sums; or on this machine's GPUs, by two ranks that are an island each. Writes the losses and a
# picture of them to build/demo. Usage: demo.sh [sim|cuda|hip], that preset being built.
set -euo pipefail
cd "$(dirname "$0")/.."
backend=${1:-sim}
out=build/demo
mpiexec=$(sed -n 's/^MPIEXEC_EXECUTABLE:[A-Z]*=//p' "build/$backend/CMakeCache.txt")
mkdir -p "$out"

# Open MPI refuses root, and more ranks than cores, unless told otherwise.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
if [ "$backend" = sim ]; then
    ranks=5
    export HETMPI_SIM_VENDORS=nvidia,amd,nvidia,nvidia,amd
else
    ranks=2
    export HETMPI_ISLANDS=a,b
fi

"$mpiexec" -n $ranks "build/$backend/examples/train_digits" --data examples/data/digits.csv.gz --out "$out"
gnuplot -e "dir='$out'" examples/plot_loss.gp
[ -s "$out/loss.svg" ] || { echo "demo: gnuplot wrote no picture" >&2; exit 1; }
echo "Loss curves: $out/loss.svg ($out/loss.csv)"
