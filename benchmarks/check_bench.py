#!/usr/bin/env python3
"""Runs a benchmark, reads what it prints as parsers of OSU output do, and checks that its JSON lines say the same.

check_bench.py --collective C --ranks N --json FILE [--expect ok|fail|refused|usage|ranks] -- command...
"""
import argparse
import json
import os
import re
import subprocess
import sys

KEYS = {
    "collective": str, "type": (str, None), "op": (str, None), "ranks": int, "bytes": (int, None),
    "in_place": (bool, None), "where": (str, None), "latency_us": float, "slowest_us": float,
    "bandwidth_GBs": (float, None), "messages_per_s": (float, None),
    "other": (str, None), "other_latency_us": (float, None), "ratio": (float, None), "bound_us": (float, None),
    "share": (float, None), "valid": (bool, None),
}
REDUCTIONS = ("allreduce", "reduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan")
MESSAGES = ("latency", "bw", "bibw", "mbw_mr", "p2p")
NO_MPI_TYPES = ("float16", "bfloat16")


def fail(message, output=""):
    sys.exit(f"{output}\ncheck_bench: {message}")


def option(command, name):
    return command[command.index(name) + 1] if name in command else None


def read_table(output, barrier):
    """[(size or None, [numbers or None])] of the lines that an OSU parser takes: not empty, first character not '#'."""
    rows = []
    for line in output.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split()
        failed = words[-1] == "FAIL"
        words = words[:-1] if failed else words
        if not all(re.fullmatch(r"-|\d+(\.\d+)?", word) for word in words):
            fail(f"not a line of figures: {line!r}", output)
        size = None if barrier else int(words.pop(0))
        rows.append((size, [None if word == "-" else float(word) for word in words], failed))
    return rows


def read_json(path, output):
    rows = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if list(row) != list(KEYS):
                fail(f"JSON keys are {list(row)}", output)
            for key, kinds in KEYS.items():
                kinds = kinds if isinstance(kinds, tuple) else (kinds,)
                if not (type(row[key]) in kinds or (row[key] is None and None in kinds)):
                    fail(f"JSON key {key}: {row[key]!r}", output)
            rows.append(row)
    return rows


def near(a, b, tolerance=0.02):
    return abs(a - b) <= tolerance * max(abs(a), abs(b)) + 1e-12


def check_row(row, args, command, output):
    name, barrier = args.collective, args.collective == "barrier"
    expected = {
        "collective": name, "ranks": args.ranks,
        "type": None if barrier else option(command, "--type") or "float32",
        "op": (option(command, "--op") or "sum") if name in REDUCTIONS else None,
        "in_place": None if name in ("bcast", "barrier") + MESSAGES else "--in-place" in command,
        "where": None if barrier else "host" if (option(command, "-d") or "host") == "host" else "device",
        "valid": args.expect != "fail",
    }
    for key, value in expected.items():
        if row[key] != value:
            fail(f"JSON {key} is {row[key]!r}, not {value!r}", output)
    if row["slowest_us"] < row["latency_us"] * 0.99:
        fail("the slowest rank is faster than the mean", output)
    if row["latency_us"] <= 0:
        fail("a latency that is not positive", output)
    each = row["latency_us"] if name != "p2p" else 1e6 / row["messages_per_s"]
    if not barrier and not near(row["bandwidth_GBs"], row["bytes"] / each / 1e3):
        fail("JSON bandwidth_GBs is not bytes / time of a message", output)

    lacks = name in REDUCTIONS and (expected["type"] in NO_MPI_TYPES or expected["type"].startswith("float8")
                                    or expected["op"] == "avg")
    compared = option(command, "--compare") == "mpi" and not lacks
    if (row["other"] == "mpi") != compared or (row["ratio"] is not None) != compared:
        fail(f"JSON other is {row['other']!r}", output)
    if compared and not near(row["ratio"], row["other_latency_us"] / row["latency_us"]):
        fail("JSON ratio is not the other's time / ours", output)
    if (row["bound_us"] is not None) != ("--bound" in command and not barrier and name not in MESSAGES):
        fail(f"JSON bound_us is {row['bound_us']!r}", output)
    if row["bound_us"] is not None and not near(row["share"], row["bound_us"] / row["slowest_us"]):
        fail("JSON share is not bound / time of the slowest rank", output)


def columns(name, command):
    rate = name in MESSAGES and name not in ("latency", "p2p")
    header = ["Bandwidth (MB/s)" if rate else "Latency (us)" if name in MESSAGES else "Avg Latency(us)"]
    if name == "p2p":
        header += ["Bandwidth (MB/s)"]
    if name in ("mbw_mr", "p2p"):
        header += ["Messages/s"]
    if "-f" in command:
        header += ["Min Latency(us)", "Max Latency(us)", "Iterations"]
    if "--compare" in command:
        header += ["MPI (MB/s)" if rate else "MPI Latency(us)", "Ratio"]
    if "--bound" in command:
        header += ["Bound(us)", "Share"]
    return header


def check_run(args, command, output):
    barrier = args.collective == "barrier"
    table, rows = read_table(output, barrier), read_json(args.json, output)
    names = columns(args.collective, command)
    header = ("# " if barrier else "# Size ") + " ".join(names)
    if header not in [" ".join(line.split()) for line in output.splitlines()]:
        fail(f"no line {header!r}", output)
    if not table or len(table) != len(rows):
        fail(f"{len(table)} lines of figures, {len(rows)} of JSON", output)
    if not barrier:
        least, most = (int(x) for x in option(command, "-m").split(":"))
        sizes = [size for size, _, _ in table]
        whole = 16 * args.ranks
        if sizes != sorted(set(sizes)) or not least <= sizes[0] < least + whole or not most <= sizes[-1] < most + whole:
            fail(f"sizes are {sizes}", output)
    for (size, numbers, failed), row in zip(table, rows):
        if size != row["bytes"] or len(numbers) != len(names):
            fail(f"size {size}: {len(numbers)} figures, JSON bytes {row['bytes']}", output)
        figures = dict(zip(names, numbers))
        rate = names[0] == "Bandwidth (MB/s)"
        first, mean = numbers[0], row["latency_us"]
        if abs(first - (row["bytes"] / mean if rate else mean)) > 0.006 + 1e-5 * first:
            fail(f"size {size}: {names[0]} {first}, JSON latency_us {mean}", output)
        if "Messages/s" in figures and not near(figures["Messages/s"], row["messages_per_s"] or 1e6 / mean):
            fail(f"size {size}: {figures['Messages/s']} messages a second, JSON latency_us {mean}", output)
        if "-f" in command and not figures["Min Latency(us)"] <= mean + 0.01 <= figures["Max Latency(us)"] + 0.02:
            fail(f"size {size}: the mean is {mean}, least and most are {figures}", output)
        if failed != (args.expect == "fail"):
            fail(f"size {size}: {'FAIL' if failed else 'no FAIL'}", output)
        check_row(row, args, command, output)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collective", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--expect", choices=("ok", "fail", "refused", "usage", "ranks"), default="ok")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    if os.path.exists(args.json):
        os.remove(args.json)
    command = args.command + ["--json", args.json]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=540, check=False)
    everything = f"$ {' '.join(command)}\n{run.stdout}{run.stderr}(exit code {run.returncode})"

    if (run.returncode == 0) != (args.expect == "ok"):
        fail(f"exit code {run.returncode}, expected: {args.expect}", everything)
    if args.expect in ("refused", "usage", "ranks"):
        if re.search(r"^\s*\d", run.stdout, re.MULTILINE) or os.path.exists(args.json):
            fail("it printed figures", everything)
        wanted = {"refused": r"-d \w+: rank \d+: ", "usage": "Try .*--help", "ranks": "start it with"}[args.expect]
        if len(re.findall(wanted, run.stderr)) != 1:
            fail(f"no message, or more than one: {wanted}", everything)
        return
    if args.expect == "fail" and "wrong result" not in run.stderr and "left " not in run.stderr:
        fail("no message that says what is wrong", everything)
    check_run(args, command, run.stdout)
    print(everything)


if __name__ == "__main__":
    main()
