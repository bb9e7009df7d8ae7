#!/bin/sh
# Measures what docs/performance.md reports and prints it as markdown: machine, date, tables, commands.
#   scripts/measure.sh [FOLDER]     keeps the JSON lines and the logs in FOLDER (default: build/measure)
# Builds the presets that it needs first. Takes some twelve minutes on two cores; run it on an otherwise idle machine.
# MEASURE_ONLY="host messages sim links" chooses parts, MEASURE_KINDS="bcast gather" collectives, MEASURE_MPI="openmpi"
# or "mpich"; MEASURE_SECONDS=0.15 is the time for one size and side. MEASURE_PREFIX="chrt -f 10" puts the ranks before
# whatever else a shared machine is doing.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/measure}
only=${MEASURE_ONLY:-host messages sim links}
mkdir -p "$out"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# build PRESET: the benchmarks of that preset, up to date.
build() {
    cmake --preset "$1" >"$out/build-$1.log" 2>&1 && cmake --build "build/$1" --target hetmpi_benchmarks \
        >>"$out/build-$1.log" 2>&1 || { cat "$out/build-$1.log" >&2; exit 1; }
}

case $only in *host*|*messages*)
    case ${MEASURE_MPI:-openmpi mpich} in *mpich*) build release-mpich ;; esac
    build release
esac
case $only in *links*) build release ;; esac
case $only in *sim*) build sim ;; esac

failed=0
python3 scripts/measure.py "$out" $only || failed=1
case $only in *links*)
    printf '\n### Two hosts with shaped links\n\n'
    SHAPED_PREFIX=${MEASURE_PREFIX:+nice -n -15} benchmarks/shaped_links.sh build/release "$out/links" || [ $? = 77 ] || failed=1
esac
exit $failed
