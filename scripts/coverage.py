#!/usr/bin/env python3
"""Prints which lines of src/ ran, by what gcov left in one or several build trees, taken together.

Usage: coverage.py [--most PERCENT] [--uncovered] BUILD...
--uncovered: also the numbers of the lines that never ran. Ends with an error where less than PERCENT of all lines ran."""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Device runtimes: they need a vendor's compiler and driver.
ELSEWHERE = ("src/mem/cuda", "src/mem/hip", "src/mem/gpu")


def data_files(build):
    for folder, _, names in os.walk(build):
        yield from (os.path.join(folder, name) for name in names if name.endswith(".gcda"))


def read(data, lines):
    """Adds to lines[file][number] how often each line ran."""
    said = subprocess.run(["gcov", "--json-format", "--stdout", data], capture_output=True, text=True, check=True,
                          cwd=os.path.dirname(data)).stdout
    for text in said.splitlines():
        report = json.loads(text)
        for file in report["files"]:
            path = os.path.join(report["current_working_directory"], file["file"])
            path = os.path.relpath(os.path.realpath(path), ROOT)
            if not path.startswith("src/"):
                continue
            of_file = lines.setdefault(path, {})
            for line in file["lines"]:
                of_file[line["line_number"]] = of_file.get(line["line_number"], 0) + line["count"]


def ranges(numbers):
    """1 2 3 7 as "1-3 7"."""
    out, first, last = [], None, None
    for number in sorted(numbers) + [None]:
        if last is not None and number == last + 1:
            last = number
            continue
        if last is not None:
            out.append(str(first) if first == last else f"{first}-{last}")
        first = last = number
    return " ".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--most", type=float, default=0)
    parser.add_argument("--uncovered", action="store_true")
    parser.add_argument("build", nargs="+")
    options = parser.parse_args()
    lines, ran, of = {}, 0, 0
    for build in options.build:
        for data in data_files(os.path.abspath(build)):
            read(data, lines)
    if not lines:
        sys.exit("coverage.py: no test has run in " + " ".join(options.build))
    print(f"{'file':40} {'lines':>6} {'ran':>6} {'%':>6}" + ("  never ran" if options.uncovered else ""))
    for path in sorted(lines):
        never = [number for number, count in lines[path].items() if not count]
        n = len(lines[path])
        ran, of = ran + n - len(never), of + n
        print(f"{path:40} {n:6} {n - len(never):6} {100 * (n - len(never)) / n:6.1f}" +
              ("  " + ranges(never) if options.uncovered and never else ""))
    print(f"{'all':40} {of:6} {ran:6} {100 * ran / of:6.1f}")
    missing = sorted(os.path.relpath(os.path.join(folder, name), ROOT) for folder, _, names in os.walk(ROOT + "/src")
                     for name in names if name.endswith((".c", ".cu")))
    built = {name.removesuffix(".gcno") for build in options.build for _, _, names in os.walk(build) for name in names}
    for path in missing:
        if path not in lines:
            print(f"{path:40} " + ("not built here: a vendor's device runtime" if path.startswith(ELSEWHERE) else
                                   "no lines of its own" if os.path.basename(path) in built else "not built here"))
    if 100 * ran / of < options.most:
        sys.exit(f"coverage.py: {100 * ran / of:.1f} % of the lines ran, at least {options.most:g} % should")


if __name__ == "__main__":
    main()
