#!/bin/bash
# Starts ranks on the two emulated hosts of the guest (scripts/rdma_vm.sh): mpirun_hosts.sh N1 N2 PROGRAM ARGUMENTS...
# Ranks 0..N1-1 run on h1, the rest on h2. The NICs of a host are rxa0, rxa1, ... on h1 and rxb0, ... on h2; HETMPI_RAILS
# names them, unless RDMA_RAILS_H1 and RDMA_RAILS_H2 say otherwise. Further options for mpirun: MPIRUN_OPTIONS.
set -eu
[ "${1:-}" != --version ] || exec mpirun --version   # scripts ask which MPI this is
[ $# -ge 3 ] || { echo "usage: $0 N1 N2 PROGRAM..." >&2; exit 2; }
n1=$1 n2=$2
shift 2
rails_of() { seq -s, -f "rx$1%g" 0 $((RDMA_RAILS - 1)); }
export RDMA_RAILS_H2=${RDMA_RAILS_H2:-$(rails_of b)}
agent=$(mktemp)
trap 'rm -f "$agent"' EXIT
# In place of ssh: the daemon of h2 runs here, under another host name.
cat >"$agent" <<'AGENT'
#!/bin/bash
host=$1
shift
exec unshare -u bash -c 'hostname "$0"; export HETMPI_RAILS=$RDMA_RAILS_H2; exec bash -c "$*"' "$host" "$@"
AGENT
chmod +x "$agent"
HETMPI_RAILS=${RDMA_RAILS_H1:-$(rails_of a)} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun --mca plm rsh --mca plm_rsh_agent "$agent" --mca orte_leave_session_attached 1 --mca btl tcp,self --mca pml ob1 \
    --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo --mca mpi_yield_when_idle 1 --mca rmaps_base_oversubscribe 1 \
    --host "h1:$n1,h2:$n2" -np $((n1 + n2)) ${MPIRUN_OPTIONS:-} "$@"
