#!/usr/bin/env python3
"""Checks a report of hetmpi: check_report.py FILE KEY=VALUE...

why=W            why it was written
suspects=1,2     the ranks that it names, exactly; suspects=has:1 this one at least
number=N         of the call that does not go on
rank.R.KEY=VALUE what it says of rank R; TEXT* matches the beginning, *TEXT* anywhere
"""
import fnmatch
import json
import sys

KEYS = {"rank", "node", "island", "vendor", "process", "state", "suspect", "doing"}


def fail(text):
    print(f"check_report: {sys.argv[1]}: {text}", file=sys.stderr)
    sys.exit(1)


def main():
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError) as error:
        fail(error)
    comms = [c for c in report["communicators"] if c["call"] is not None] or report["communicators"]
    comm = comms[0]
    if [r["rank"] for r in comm["ranks"]] != list(range(comm["size"])):
        fail(f"ranks {[r['rank'] for r in comm['ranks']]} of {comm['size']}")
    for rank in comm["ranks"]:
        if not KEYS <= rank.keys():
            fail(f"rank {rank['rank']} lacks {KEYS - rank.keys()}")
        if (rank["suspect"] is not None) != (rank["rank"] in comm["suspects"]):
            fail(f"rank {rank['rank']}: suspect {rank['suspect']}, but suspects are {comm['suspects']}")
    for wanted in sys.argv[2:]:
        key, value = wanted.split("=", 1)
        if key == "suspects" and value.startswith("has:"):
            if int(value[4:]) not in comm["suspects"]:
                fail(f"suspects {comm['suspects']}, {value[4:]} is not among them")
            continue
        if key.startswith("rank."):
            _, rank, key = key.split(".")
            found = comm["ranks"][int(rank)]
            if key.startswith("call_"):
                found, key = found.get("call") or {}, key[5:]
            found = found.get(key)
        elif key == "suspects":
            found = ",".join(str(r) for r in comm["suspects"])
        else:
            found = {"why": report["why"], "number": comm["call"], "message": report["message"]}[key]
        if not fnmatch.fnmatchcase(str(found), value):
            fail(f"{wanted}: it is {found!r}\n{json.dumps(report, indent=1)}")


main()
