#!/bin/sh
# The two libraries' symbols: the drop-in gives MPI's names alone, and libhetmpi uses none of them, since its own calls
# would come back to it. Usage: symbols.sh LIBHETMPI LIBHETMPI_PMPI
set -u
export LC_ALL=C
given=$(nm -D --defined-only "$2" | awk '{ print $3 }' | sort)
used=$(nm -D --undefined-only "$1" | awk '{ print $2 }' | sort)
[ "$(echo "$given" | wc -l)" -ge 90 ] || { echo "FAILED: only these are exported:" "$given"; exit 1; }
if echo "$given" | grep -v '^MPI_\|^mpi_'; then echo "FAILED: these are exported too"; exit 1; fi
echo "$used" | grep -q '^MPI_Comm_rank$' || { echo "FAILED: no MPI calls were found in $1"; exit 1; }
both=$(printf '%s\n%s\n' "$given" "$used" | sort | uniq -d)
[ -z "$both" ] || { echo "FAILED: libhetmpi calls what the drop-in takes (use PMPI_ there):" $both; exit 1; }
