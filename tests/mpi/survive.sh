# Sourced by scripts that kill ranks; $1 is mpiexec. Sets what keeps a job alive when one of its ranks dies: environment,
# launch_flags (further flags) and out_of_group (a command in front of the program). Skips where that is not known.
out_of_group=
launch_flags=
case $("$1" --version 2>&1) in
*"Open MPI"* | *OpenRTE* | *PRRTE*) OMPI_MCA_orte_enable_recovery=1 && export OMPI_MCA_orte_enable_recovery ;;
*HYDRA* | *Hydra*)
    # Hydra kills the process groups that it started some milliseconds after a rank died, -disable-auto-cleanup or not:
    # ranks in sessions of their own live on. UCX ends a process that was reading a dead one's memory.
    launch_flags=-disable-auto-cleanup
    out_of_group="setsid -w"
    UCX_TLS=^cma && export UCX_TLS
    ;;
*) echo "skipped: do not know how $1 keeps a job alive when a rank dies" && exit 77 ;;
esac
