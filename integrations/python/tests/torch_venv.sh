#!/bin/bash
# Adds torch to the environment that venv.sh made in WORK, for tensors on the CPU, and compiles the backend for it. torch's
# usual wheel is taken without the libraries of CUDA that it depends on; where the machine has none, stand-ins of ours let
# it load (stub_libraries.py). Exit code 77, with the reason, where it cannot be had.
# Usage: torch_venv.sh WORK    (leaves WORK/torch, WORK/stubs and WORK/extensions, for torch_run.sh)
set -uo pipefail
work=$(realpath -m "$1")
here=$(cd "$(dirname "$0")" && pwd)
python=$work/venv/bin/python
requirements=$here/torch_requirements.txt

skip() { echo "skipped: $*"; exit 77; }

[ -d "$work/package" ] || skip "$work/venv has not the package (see what python.venv said)"
if ! cmp -s "$requirements" "$work/torch_requirements.txt"; then
    rm -rf "$work/torch" "$work/stubs" "$work/torch_requirements.txt"
    free=$(df -Pk "$work" | awk 'NR == 2 { print $4 }')
    [ "$free" -ge 4000000 ] || skip "torch needs 4 GB of disk, $work has $((free / 1000000))"
    timeout 600 "$python" -m pip --disable-pip-version-check -q install --no-deps --target "$work/torch" -r "$requirements" \
        >"$work/torch.log" 2>&1 || skip "the packages of torch_requirements.txt cannot be had (see $work/torch.log)"
    "$python" "$here/stub_libraries.py" "$work/torch/torch" "$work/stubs" >>"$work/torch.log" 2>&1 ||
        skip "the stand-ins for CUDA's libraries cannot be made (see $work/torch.log)"
    cp "$requirements" "$work/"
fi
"$here/torch_run.sh" "$work" python -m hetmpi.torch._build
