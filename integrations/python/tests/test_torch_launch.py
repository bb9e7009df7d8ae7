"""hetmpi.torch from the start to the end of processes. Run by itself, not under mpirun (torch_job.py is)."""
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import time

import pytest

MPIEXEC = shlex.split(os.environ.get("HETMPI_TEST_MPIEXEC", "mpirun -n"))
JOB = str(pathlib.Path(__file__).with_name("torch_job.py"))


def run(ranks, *arguments, **environment):
    """On so many ranks; 0: without mpiexec."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launch = [*MPIEXEC, str(ranks)] if ranks else []
    result = subprocess.run([*launch, sys.executable, JOB, *arguments], env={**os.environ, "PORT": str(port), **environment},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
    return result.returncode, result.stdout


@pytest.mark.parametrize("job, ranks", [("world", 1), ("world", 3), ("environment", 3), ("again", 2), ("flat", 2)])
def test_jobs(job, ranks):
    code, output = run(ranks, job)
    print(output)
    assert code == 0, output


@pytest.mark.parametrize("job", ["world", "alone", "unloaded"])
def test_without_mpirun(job):
    code, output = run(0, job)
    assert code == 0, output


def test_an_exception_on_one_rank_ends_the_job():
    code, output = run(2, "exception")
    assert code != 0 and "ValueError: on purpose" in output, output


def test_a_rank_killed_in_training(tmp_path):
    ranks = 3
    # mpiexec's verdict does not count, and it must not end those who live before they have seen what happened.
    run(ranks, "death", str(tmp_path), OMPI_MCA_orte_enable_recovery="1")
    end = time.monotonic() + 30
    reports = {}
    while len(reports) < ranks - 1 and time.monotonic() < end:
        time.sleep(0.1)
        reports = {path.name: path.read_text() for path in tmp_path.glob("rank.?")}
    print(reports)
    assert sorted(reports) == ["rank.0", "rank.2"]
    for text in reports.values():
        seconds, words = text.split(" ", 1)
        assert float(seconds) < 10, text
        assert words.startswith("DistBackendError: hetmpi:") and "rank 1" in words, text
