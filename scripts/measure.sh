#!/bin/sh
# Measures what docs/performance.md reports and prints it as one markdown section: machine, date, commands, table.
#   scripts/measure.sh [FOLDER]     keeps the JSON lines and the logs in FOLDER (default: build/measure)
# Builds the presets that it needs first. Takes some ten minutes on two cores; run it on an otherwise idle machine.
# More options for every run: MEASURE_OPTIONS="--seconds 0.5". Only some runs: MEASURE_ONLY="host" or "sim". A word before
# each launcher: MEASURE_PREFIX="chrt -f 10" puts the ranks before whatever else a shared machine is doing.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/measure}
only=${MEASURE_ONLY:-host sim}
mkdir -p "$out"
rm -f "$out"/*.json "$out"/*.log "$out"/runs

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# build PRESET: the benchmark of that preset, up to date.
build() {
    cmake --preset "$1" >"$out/build-$1.log" 2>&1 && cmake --build "build/$1" --target hetmpi_allreduce_bench \
        >>"$out/build-$1.log" 2>&1 || { cat "$out/build-$1.log" >&2; exit 1; }
}

# start PRESET: the mpiexec that the preset was configured with.
start() {
    sed -n 's/^MPIEXEC_EXECUTABLE:[^=]*=//p' "build/$1/CMakeCache.txt"
}

# measure NAME BAR RANKS ENVIRONMENT PRESET OPTION...: one run. BAR is latency, bandwidth or share.
measure() {
    name=$1 bar=$2 ranks=$3 settings=$4 preset=$5
    shift 5
    launcher=$(start "$preset")
    program=build/$preset/benchmarks/hetmpi_allreduce_bench
    echo "measuring $name" >&2
    # The settings and options are words on purpose.
    # shellcheck disable=SC2086
    if ! env $settings ${MEASURE_PREFIX:-} "$launcher" -n "$ranks" "$program" "$@" ${MEASURE_OPTIONS:-} --json "$out/$name.json" \
        >"$out/$name.log" 2>&1; then
        echo "failed: see $out/$name.log" >&2
        failed=1
    fi
    echo "$name|$bar|$settings ${MEASURE_PREFIX:-} $(basename "$launcher") -n $ranks $program $* ${MEASURE_OPTIONS:-}" >>"$out/runs"
}

failed=0
case $only in *host*)
    for preset in release release-mpich; do
        build $preset
        mpi=openmpi
        [ $preset = release ] || mpi=mpich
        measure "host-$mpi-small" latency 2 "" $preset -m 8:4096 --compare mpi --bound
        measure "host-$mpi-large" bandwidth 2 "" $preset -m 64K:64M --compare mpi --bound
    done
esac
case $only in *sim*)
    build sim
    for wire in shm mpi; do
        slow="HETMPI_SIM_BANDWIDTH=100M HETMPI_WIRE=$wire"
        measure "sim-1+1-$wire" share 2 "HETMPI_SIM_VENDORS=nvidia,amd $slow" sim \
            -d sim -m 4M:16M -i 10 -x 2 --compare mpi --bound
        measure "sim-2+2-$wire" share 4 "HETMPI_SIM_VENDORS=nvidia,amd,nvidia,amd $slow" sim \
            -d sim -m 4M:16M -i 10 -x 2 --compare mpi --bound
        measure "sim-3+1-$wire" share 4 "HETMPI_SIM_VENDORS=nvidia,nvidia,amd,nvidia $slow" sim \
            -d sim -m 4M:16M -i 10 -x 2 --compare mpi --bound
    done
esac

python3 - "$out" <<'PYTHON'
import datetime
import json
import os
import subprocess
import sys

BARS = {"latency": ("ratio", 1.0, "latency <= 1.0x"), "bandwidth": ("ratio", 2.0, "bandwidth >= 2x"),
        "share": ("share", 0.95, "share of bound >= 0.95")}
folder = sys.argv[1]


def figure(value):
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} x {names[0] if names else 'unknown CPU'}"


commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
print(f"{datetime.date.today()}, {cpu()}, Linux {os.uname().release}, commit {commit.stdout.strip() or 'unknown'}, "
      f"load {os.getloadavg()[0]:.1f} at the end.\n")
print("| run | bytes | hetmpi us | MPI us | ratio | bound us | share | bar | met |")
print("|---|---|---|---|---|---|---|---|---|")
commands = []
with open(f"{folder}/runs", encoding="utf-8") as runs:
    for run in runs:
        name, bar, command = run.strip().split("|", 2)
        commands.append((name, " ".join(command.split())))
        key, least, text = BARS[bar]
        path = f"{folder}/{name}.json"
        rows = open(path, encoding="utf-8").read().splitlines() if os.path.exists(path) else []
        if not rows:
            print(f"| {name} | - | failed | - | - | - | - | {text} | no |")
        for row in map(json.loads, rows):
            met = row["valid"] and row[key] is not None and row[key] >= least
            print(f"| {name} | {row['bytes']} | {figure(row['latency_us'])} | {figure(row['other_latency_us'])} | "
                  f"{figure(row['ratio'])} | {figure(row['bound_us'])} | {figure(row['share'])} | {text} | "
                  f"{'yes' if met else 'no' if row['valid'] else 'WRONG RESULT'} |")
print("\nRatio: MPI's time over hetmpi's. Share: bound over hetmpi's time. Commands:\n\n```sh")
for name, command in commands:
    print(f"# {name}\n{command}")
print("```")
PYTHON
exit $failed
