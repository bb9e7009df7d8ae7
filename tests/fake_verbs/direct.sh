#!/bin/bash
# Which way device memory goes over the verbs wire: by dma-buf, else by its address, else through slots in host memory; the
# results are the same bits. Usage: direct.sh MPIEXEC BITS FAKE_LIBRARY_FOLDER   (BITS: tests/mpi/bits)
set -uo pipefail
mpiexec=$1 bits=$2 log=$(mktemp)
trap 'rm -f "$log"' EXIT
export LD_LIBRARY_PATH=$3:${LD_LIBRARY_PATH:-} HETMPI_TEST_RANKS=2 HETMPI_SIM_NODES=0,1 HETMPI_LOG=info HETMPI_ZERO_COPY=9K
failed=0

# way WORDS COPIES [NAME=VALUE ...]; COPIES: no, all
way()
{
    local words=$1 copies=$2 direct
    shift 2
    env "$@" "$mpiexec" -n 2 "$bits" > "$log" 2>&1 || { echo "FAILED: $words: exit code $?"; failed=1; }
    grep -q "reaches device memory by: $words" "$log" || { echo "FAILED: not $words: $(grep reaches "$log")"; failed=1; }
    direct=$(sed -n 's/.*had \([0-9]*\) bytes moved straight by its NICs.*/\1/p' "$log" | sort -n | tail -1)
    case $copies in
        no) [ "${direct:-0}" -gt 0 ] || { echo "FAILED: $words: everything was copied"; failed=1; } ;;
        all) [ "${direct:-0}" = 0 ] || { echo "FAILED: $words: $direct bytes went without a copy"; failed=1; } ;;
    esac
}

way "dma-buf" no FAKE_VERBS_DMABUF=ok FAKE_VERBS_PEER=EFAULT
way "peer memory" no FAKE_VERBS_DMABUF=EOPNOTSUPP FAKE_VERBS_PEER=ok
way "staged" all FAKE_VERBS_DMABUF=EOPNOTSUPP FAKE_VERBS_PEER=EFAULT
exit $failed
