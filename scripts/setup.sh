#!/bin/bash
# Installs the Debian packages that are missing: what `make demo`, `make check` or `.ci/run` needs.
# Usage: setup.sh demo|check|ci
set -euo pipefail

demo=(gcc libc6-dev make cmake ninja-build pkg-config python3 openmpi-bin libopenmpi-dev libcmocka-dev libjson-c-dev
      libibverbs-dev zlib1g-dev gnuplot-nox)
rdma=(qemu-system-x86 rdma-core ibverbs-providers ibverbs-utils iproute2 busybox-static xz-utils)
check=("${demo[@]}" "${rdma[@]}" g++ gfortran python3-dev python3-venv mpich libmpich-dev mandoc)
ci=("${check[@]}" clang libclang-rt-14-dev hipcc libamdhip64-dev)

case ${1:-} in
    demo) wanted=("${demo[@]}") ;;
    check) wanted=("${check[@]}") ;;
    ci) wanted=("${ci[@]}") ;;
    *) echo "usage: $0 demo|check|ci" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system; going on, in the hope that these are here by other names: ${wanted[*]}" >&2
    exit 0
fi
missing=()
for package in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=(env)
elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=(sudo env)
else
    echo "setup: these packages are missing, and this user cannot install them:" >&2
    echo "    ${missing[*]}" >&2
    echo "setup: as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi
echo "setup: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
