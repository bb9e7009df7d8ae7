"""Trains the small GPT cut in Megatron's ways, on hetmpi, on gloo and on one rank, and compares the losses of every step:

    python compare.py [--ranks 2 4] [--only NAME ...] [--mpiexec "mpirun -n"]

Where libhetmpi has simulated devices, its ranks claim the vendors of --vendors in turn: two islands. Each way runs twice on hetmpi; the
losses must be the same bits, those of gloo to 6 decimals with 2 ranks (2.5e-4 with more), and those of one rank within 1e-3. Ways that
gloo cannot run (uneven lists) are compared with one rank alone."""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile

MOE = "--experts 4"
WAYS = {   # name: (options, numbers of ranks, options of one rank that mean the same model, whether gloo can)
    "dp": ("", (2, 4), "", True),
    "dp-uneven": ("--shares 6,2", (2,), "", True),
    "distopt": ("--distributed-optimizer", (2, 4), "", True),
    "distopt-overlap": ("--distributed-optimizer --overlap", (2, 4), "", True),
    "tp": ("--tp 2", (2, 4), "", True),
    "tp-sp": ("--tp 2 --sp", (2, 4), "", True),
    "tp4-sp": ("--tp 4 --sp", (4,), "", True),
    "pp": ("--pp 2", (2, 4), "", True),
    "pp-uneven": ("--pp 2 --layout Et|t*3L", (2, 4), "", True),
    "vpp": ("--pp 2 --vpp 2", (2, 4), "", True),
    "tp-sp-pp": ("--tp 2 --sp --pp 2", (4,), "", True),
    "ep": (f"--ep 2 {MOE}", (2, 4), MOE, True),
    "ep-distopt": (f"--ep 2 {MOE} --distributed-optimizer", (2, 4), MOE, True),
    "tp-sp-ep": (f"--tp 2 --sp --ep 2 {MOE}", (4,), MOE, False),
    "tp-sp-ep-distopt": (f"--tp 2 --sp --ep 2 {MOE} --distributed-optimizer", (4,), MOE, False),
}


def run(backend, trainings, steps, into):
    """On every rank of a job: trains in one way after the other. Whoever has the losses of one appends them to the file."""
    import train_gpt
    train_gpt.start(backend)
    for name, options in trainings:
        losses = train_gpt.train(train_gpt.options(["--steps", str(steps), *shlex.split(options)]), speak=lambda text: None)
        if losses:
            with open(into, "a") as file:
                file.write(json.dumps([name, losses]) + "\n")
        train_gpt.dist.barrier()
    train_gpt.dist.destroy_process_group()


def job(arguments, ranks, backend, trainings):
    """{name: [losses of each training of that name]} of a job of its own."""
    with tempfile.NamedTemporaryFile() as file:
        environment = os.environ | {"HETMPI_TIMEOUT": "300", "PYTHONWARNINGS": "ignore"}
        if arguments.vendors:
            environment["HETMPI_SIM_VENDORS"] = ",".join((arguments.vendors.split(",") * ranks)[:ranks])
        command = [*shlex.split(arguments.mpiexec), str(ranks), sys.executable, os.path.abspath(__file__), "--run",
                   json.dumps([backend, trainings, arguments.steps, file.name])]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            print(f"{backend} on {ranks} ranks ended with {done.returncode}:\n{done.stdout[-4000:]}", file=sys.stderr)
        found = {}
        for line in open(file.name):
            name, losses = json.loads(line)
            found.setdefault(name, []).append(losses)
        return found


def far(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--only", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--mpiexec", default="mpirun -n")
    parser.add_argument("--vendors", default="nvidia,amd", help="empty: as they are")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(*json.loads(arguments.run))
        return
    alone = job(arguments, 1, "hetmpi", [(same, same) for same in sorted({WAYS[name][2] for name in arguments.only})])
    bad = 0
    print("| ranks | way | last loss | from gloo | from one rank | repeated |\n|---|---|---|---|---|---|")
    for ranks in arguments.ranks:
        ways = [name for name in arguments.only if ranks in WAYS[name][1]]
        ours = job(arguments, ranks, "hetmpi", [(name, WAYS[name][0]) for name in ways for _ in range(2)])
        gloo = job(arguments, ranks, "gloo", [(name, WAYS[name][0]) for name in ways if WAYS[name][3]])
        for name in ways:
            _, _, same, gloo_can = WAYS[name]
            runs = ours.get(name, [])
            good = len(runs) == 2 and same in alone and (not gloo_can or name in gloo)
            if good:
                from_one = far(runs[0], alone[same][0])
                from_gloo = far(runs[0], gloo[name][0]) if gloo_can else 0
                good = runs[0] == runs[1] and from_one < 1e-3 and from_gloo <= (5e-7 if ranks == 2 else 2.5e-4)
                print(f"| {ranks} | {name} | {runs[0][-1]:.6f} | {f'{from_gloo:.1e}' if gloo_can else 'cannot'} | {from_one:.1e} | "
                      f"{'same bits' if runs[0] == runs[1] else 'differs'} |{'' if good else ' BAD'}", flush=True)
            else:
                print(f"| {ranks} | {name} | did not run | | | | BAD", flush=True)
            bad += not good
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
