#!/bin/bash
# scripts/backend.sh on machines with and without GPUs, which stand-ins of the vendors' tools tell it of.
set -euo pipefail
script=$1 tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
ln -s "$(command -v bash)" "$(command -v grep)" "$tools"

# tool NAME TEXT: a program that prints the text.
tool() {
    printf '#!%s\necho "%s"\n' "$tools/bash" "$2" >"$tools/$1"
    chmod +x "$tools/$1"
}

# expect BACKEND WHAT
expect() {
    local found
    found=$(PATH=$tools bash "$script" 2>/dev/null)
    [ "$found" = "$1" ] || { echo "backend.sh: $2: \"$found\", not $1" >&2; exit 1; }
}

expect sim "no tools"
tool nvidia-smi "No devices were found"
tool rocminfo "ROCk module is NOT loaded"
tool nvcc ""
tool hipcc ""
expect sim "tools and no GPU"
tool rocminfo "  Name:                    gfx90a"
expect hip "an AMD GPU"
tool nvidia-smi "GPU 0: NVIDIA H200"
expect cuda "GPUs of both"
tool rocminfo "none"
if [ ! -x /usr/local/cuda/bin/nvcc ]; then
    rm "$tools/nvcc"
    expect sim "an NVIDIA GPU without a compiler"
fi
