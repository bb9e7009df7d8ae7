#!/bin/sh
# Runs a command in the environment that torch_venv.sh made in WORK. Usage: torch_run.sh WORK COMMAND...
work=$1
shift
if [ ! -f "$work/torch_requirements.txt" ]; then
    echo "skipped: there is no torch (see what python.torch.venv said)"
    exit 77
fi
export PATH="$work/venv/bin:$PATH" PYTHONPATH="$work/torch" LD_LIBRARY_PATH="$work/stubs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export TORCH_EXTENSIONS_DIR="$work/extensions" OMP_NUM_THREADS=1
cd "$work" && exec "$@"
