#!/usr/bin/env python3
"""Runs the benchmarks for scripts/measure.sh, which has built them, and prints markdown tables of what they say.

measure.py FOLDER PART...: FOLDER for JSON lines and logs; parts: host, messages, sim. Settings: see measure.sh.
"""
import datetime
import json
import math
import os
import re
import shlex
import subprocess
import sys

REDUCTIONS = ["allreduce", "reduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan"]
COLLECTIVES = REDUCTIONS + ["bcast", "allgather", "allgatherv", "gather", "gatherv", "scatter", "scatterv", "alltoall",
                            "alltoallv", "barrier"]
MESSAGES = ["latency", "bw", "bibw", "mbw_mr"]
LEAST = 1 / 1.05        # of the ratio, at every size
MEAN = 1.5              # of the reductions, over the sizes
AGAIN = 2               # more runs of a size that misses the bar: the median counts
PRESETS = {"openmpi": "release", "mpich": "release-mpich"}
# Vendors of the ranks, and their islands where those are not the vendors.
SHAPES = {"1+1": ("nvidia,amd", None), "2+2": ("nvidia,amd,nvidia,amd", None),
          "3+1": ("nvidia,nvidia,amd,nvidia", None), "1+1+1": ("nvidia,amd,nvidia", "a,b,c")}
SLOW = "HETMPI_SIM_BANDWIDTH=100M"

folder = sys.argv[1]
parts = sys.argv[2:]
seconds = os.environ.get("MEASURE_SECONDS", "0.15")
kinds = os.environ.get("MEASURE_KINDS", "").split()
libraries = os.environ.get("MEASURE_MPI", "openmpi mpich").split()
commands = []
failed = False


def chosen(names):
    return [name for name in names if not kinds or name in kinds]


def launcher(preset):
    with open(f"build/{preset}/CMakeCache.txt", encoding="utf-8") as cache:
        return re.search(r"^MPIEXEC_EXECUTABLE:[^=]*=(.*)$", cache.read(), re.MULTILINE).group(1)


def run(name, preset, kind, ranks, settings, options, again=False):
    """The JSON rows of one run; an empty list if it gave none. Repetitions are not listed among the commands."""
    global failed
    path = f"{folder}/{name}.json"
    if os.path.exists(path):
        os.remove(path)
    command = shlex.split(os.environ.get("MEASURE_PREFIX", "")) + [launcher(preset), "-n", str(ranks)]
    command += [f"build/{preset}/benchmarks/hetmpi_{kind}_bench"] + options
    shown = " ".join(settings + [os.path.basename(word) if "mpiexec" in word else word for word in command])
    if not again:
        commands.append(shown)
    environment = dict(os.environ, **dict(setting.split("=", 1) for setting in settings))
    with open(f"{folder}/{name}.log", "w", encoding="utf-8") as log:
        try:
            code = subprocess.run(command + ["--json", path], stdout=log, stderr=log, env=environment, timeout=300,
                                  check=False).returncode
        except subprocess.TimeoutExpired:
            code = "timeout"
    if code != 0:
        failed = True
        print(f"failed ({code}): {shown}: see {folder}/{name}.log", file=sys.stderr)
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def median(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def compared(name, preset, kind, sizes):
    """{bytes: ratio} of one kind, with repetitions where the bar is missed; what is not right is None."""
    options = ["--compare", "mpi", "--seconds", seconds]
    rows = run(name, preset, kind, 2, [], ([] if kind == "barrier" else ["-m", sizes]) + options)
    ratios = {}
    for row in rows:
        values = [row["ratio"]]
        right = row["valid"]
        while right and kind not in MESSAGES and values[0] < LEAST and len(values) <= AGAIN:
            size = [] if kind == "barrier" else ["-m", f"{row['bytes']}:{row['bytes']}"]
            more = run(f"{name}-{row['bytes']}-{len(values)}", preset, kind, 2, [], size + options, again=True)
            right = bool(more) and more[0]["valid"]
            values.append(more[0]["ratio"] if right else 0)
        ratios[row["bytes"]] = median(values) if right else None
    return ratios


def size_text(size):
    if size is None:
        return "-"
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K" if size >= 1 << 10 else str(size)


def verdict(kind, ratios):
    values = list(ratios.values())
    if not values or None in values:
        return ["-", "-", "FAILED"]
    mean = math.exp(sum(map(math.log, values)) / len(values))
    if kind in MESSAGES:
        return [f"{min(values):.2f}", f"{mean:.2f}", "none set"]
    met = min(values) >= LEAST and (kind not in REDUCTIONS or mean >= MEAN)
    return [f"{min(values):.2f}", f"{mean:.2f}", "yes" if met else "no"]


def table(title, names, sizes):
    """One line a kind and MPI, one column a size."""
    print(f"\n### {title}\n")
    results = []
    for library in libraries:
        for kind in chosen(names):
            print(f"measuring {kind} against {library}", file=sys.stderr)
            results.append((kind, library, compared(f"{library}-{kind}", PRESETS[library], kind, sizes)))
    columns = sorted({size for _, _, ratios in results for size in ratios if size is not None})
    print("| kind | MPI | " + " | ".join(map(size_text, columns)) + " | least | mean | bar met |")
    print("|" + "---|" * (len(columns) + 5))
    for kind, library, ratios in results:
        cells = ["-" if size not in ratios else "wrong" if ratios[size] is None else f"{ratios[size]:.2f}"
                 for size in columns]
        print(f"| {kind} | {library} | " + " | ".join(cells + verdict(kind, ratios)) + " |", flush=True)


def links(wire, shape, names, size):
    vendors, islands = SHAPES[shape]
    settings = [f"HETMPI_SIM_VENDORS={vendors}", SLOW, f"HETMPI_WIRE={wire}"]
    if islands:
        settings.append(f"HETMPI_ISLANDS={islands}")
    ranks = vendors.count(",") + 1
    for kind in chosen(names):
        if kind == "barrier":
            continue
        print(f"measuring {kind} of {shape} ranks, wire {wire}", file=sys.stderr)
        bar = 0.95 if kind == "allreduce" else 0.9
        # A block of each rank makes a message of several times the size.
        rows = run(f"sim-{wire}-{shape}-{kind}", "sim", kind, ranks, settings,
                   ["-d", "sim", "-m", f"{size}:{size}", "-i", "5", "-x", "1", "--bound"])
        for row in rows:
            met = "WRONG RESULT" if not row["valid"] else "yes" if row["share"] >= bar else "no"
            print(f"| {kind} | {shape} | {wire} | {size_text(row['bytes'])} | {row['slowest_us'] / 1e3:.1f} | "
                  f"{row['bound_us'] / 1e3:.1f} | {row['share']:.3f} | >= {bar} | {met} |", flush=True)


def cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} x {names[0] if names else 'unknown CPU'}"


def main():
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    print(f"{datetime.date.today()}, {cpu()}, Linux {os.uname().release}, commit {commit.stdout.strip() or 'unknown'}, "
          f"load {os.getloadavg()[0]:.1f} at the beginning.")
    if "host" in parts:
        table("Collectives, host memory, 2 ranks: MPI's time over hetmpi's", COLLECTIVES, "8:16M")
    if "messages" in parts:
        table("Point to point, host memory, 2 ranks: MPI's time over hetmpi's", MESSAGES, "8:4M")
    if "sim" in parts:
        print("\n### Simulated devices, links of 100 MB/s each way: share of the links' bound\n")
        print("| kind | ranks | wire | bytes | hetmpi ms | bound ms | share | bar | met |")
        print("|" + "---|" * 9)
        for shape in SHAPES:
            links("shm", shape, COLLECTIVES, "4M")
        for shape in SHAPES:
            links("mpi", shape, ["allreduce"], "4M")
    print("\nCommands:\n\n```sh")
    print("\n".join(commands))
    print("```")
    sys.exit(failed)


if __name__ == "__main__":
    main()
