#!/bin/bash
# Prints which backend suits the GPUs of this machine: cuda or hip where there is such a GPU and its compiler, else sim.
set -euo pipefail

has() {
    command -v "$1" >/dev/null
}

if has nvidia-smi && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    gpu=NVIDIA backend=cuda compiler=nvcc
elif has rocminfo && rocminfo 2>/dev/null | grep -q 'Name: *gfx'; then
    gpu=AMD backend=hip compiler=hipcc
else
    echo sim
    exit
fi
if has $compiler || [ -x /usr/local/cuda/bin/$compiler ] || [ -x /opt/rocm/bin/$compiler ]; then
    echo $backend
else
    echo "backend: this machine has an $gpu GPU, but no $compiler: going on with simulated devices" >&2
    echo sim
fi
