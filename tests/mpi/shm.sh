#!/bin/sh
# /dev/shm of 1 MiB, or one that cannot be written: hetmpi must work all the same, with its own shared memory (Open MPI is
# told to use another folder for its own). In a mount namespace; skipped where that is not allowed.
#   shm.sh PROGRAM none -- MPIEXEC FLAGS...
set -u
program=$1 argument=$2
shift 3
case $("$1" --version 2>&1) in
*"Open MPI"* | *OpenRTE*) ;;
*) echo "skipped: this MPI needs /dev/shm itself" && exit 77 ;;
esac
unshare -m true 2> /dev/null || { echo "skipped: mount namespaces are not allowed here" && exit 77; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
OMPI_MCA_btl_vader_backing_directory=$folder && export OMPI_MCA_btl_vader_backing_directory
failed=0
for options in size=1m ro; do
    # shellcheck disable=SC2016 # for the inner shell
    unshare -m sh -c 'mount -t tmpfs -o "$0" hetmpi /dev/shm && exec "$@"' "$options" \
        timeout -k 5 60 "$@" "$program" "$argument" > "$folder/output" 2>&1
    code=$?
    echo "/dev/shm with $options: exit code $code"
    if [ "$code" -ne 0 ] || grep -q "hetmpi.*cannot share\|no shared memory" "$folder/output"; then
        cat "$folder/output"
        failed=1
    fi
done
exit "$failed"
