"""Communicators: hetmpi's own and mpi4py's; what ends their use."""
import os
import subprocess
import sys

import numpy as np
import pytest

import hetmpi


def test_info(comm):
    info = comm.info()
    assert info["ranks"] == comm.size and info["rank"] == comm.rank
    if comm.size == 3:
        assert info["islands"] == 2 and info["vendor"] == ("amd" if comm.rank == 1 else "nvidia")


def test_split(comm):
    half = comm.split(comm.rank % 2, key=-comm.rank)
    assert half.size == len(range(comm.rank % 2, comm.size, 2))
    ranks = hetmpi.allgather(np.array([comm.rank]), comm=half)
    assert ranks.tolist() == list(range(comm.rank % 2, comm.size, 2))[::-1]
    half.free()
    with pytest.raises(ValueError, match="was freed"):
        hetmpi.barrier(comm=half)
    nobody = comm.split(None if comm.rank else 1)
    assert (nobody is None) == (comm.rank > 0)
    if nobody:
        nobody.free()


def test_settings(comm):
    other = comm.dup().attach(timeout="7s", chunk="64K")
    assert hetmpi.allreduce(np.ones(1), comm=other)[0] == comm.size
    other.detach()
    other.free()
    wrong = comm.dup()
    with pytest.raises(hetmpi.Error) as caught:
        wrong.attach(chunck="64K")
    assert caught.value.name == "CONFIG" and "CHUNCK" in str(caught.value).upper()
    wrong.free()


def test_messages_need_an_attached_communicator(comm):
    other = comm.dup()
    with pytest.raises(hetmpi.Error) as caught:
        hetmpi.send(np.zeros(1), comm.rank, comm=other)
    assert caught.value.name == "STATE"
    other.free()


def test_abort(comm):
    other = comm.dup().attach()
    other.check()
    hetmpi.barrier()
    if comm.rank == 0:
        other.abort()
    with pytest.raises(hetmpi.Error) as caught:
        while True:
            hetmpi.allreduce(np.ones(1), comm=other)
    assert caught.value.name == "ABORTED"
    with pytest.raises(hetmpi.Error) as caught:
        other.check()
    assert caught.value.name == "ABORTED"
    hetmpi.barrier()
    other.free()


def test_timeout(comm):
    if comm.size == 1:
        pytest.skip("nobody to wait for")
    other = comm.dup().attach(timeout="0.2")
    if comm.rank == 0:
        with pytest.raises(hetmpi.Error) as caught:
            hetmpi.recv(np.zeros(1), 1, comm=other)
        assert caught.value.code == hetmpi.ERR_TIMEOUT and "rank" in str(caught.value)
    hetmpi.barrier()
    other.free()


def test_mpi4py(comm):
    MPI = pytest.importorskip("mpi4py.MPI")
    assert MPI.Is_initialized()
    x = np.arange(4.0) + comm.rank
    expected = np.empty_like(x)
    MPI.COMM_WORLD.Allreduce(x, expected)
    assert (hetmpi.allreduce(x, comm=MPI.COMM_WORLD) == expected).all()
    half = MPI.COMM_WORLD.Split(comm.rank % 2, -comm.rank)
    assert hetmpi.comm(half).rank == half.rank
    out = hetmpi.allgather(np.array([comm.rank]), comm=half)
    assert out.tolist() == half.allgather(comm.rank)
    with pytest.raises(ValueError, match="only what split and dup gave"):
        hetmpi.comm(half).free()
    half.Free()
    with pytest.raises(ValueError, match="MPI_COMM_NULL"):
        hetmpi.barrier(comm=half)
    with pytest.raises(TypeError, match="is no communicator"):
        hetmpi.barrier(comm="world")


def alone(program):
    """Runs a program on one rank that knows nothing of this job."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("OMPI_COMM", "OMPI_MCA_orte", "OMPI_MCA_ess", "PMIX_", "PMI_", "PRTE_", "HETMPI_SIM"))}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)


def test_import_loads_no_mpi(comm):
    if comm.rank == 0:
        done = alone("import hetmpi\n"
                     "assert not [line for line in open('/proc/self/maps') if 'libmpi' in line or 'libhetmpi' in line]\n"
                     "print(hetmpi.build_info(), 'allreduce' in dir(hetmpi))\n"
                     "try: hetmpi.nothing\nexcept AttributeError as error: print(error)\n")
        assert done.returncode == 0, done.stderr
        assert "backend sim" in done.stdout and "True" in done.stdout and "no attribute 'nothing'" in done.stdout
    hetmpi.barrier()


def test_mpi_is_ended_by_who_started_it(comm):
    if comm.rank == 0:
        done = alone("import atexit, hetmpi\n"
                     "hetmpi.world()\n"
                     "from mpi4py import MPI\n"
                     "atexit.register(lambda: print('open', not MPI.Is_finalized()))\n")
        assert done.returncode == 0 and done.stdout == "open True\n", done.stderr
        done = alone("from mpi4py import MPI\n"
                     "import hetmpi, numpy\n"
                     "print(hetmpi.allreduce(numpy.ones(2)))\n")
        assert done.returncode == 0 and done.stdout == "[1. 1.]\n", done.stderr
        assert alone("import hetmpi\nhetmpi.world()\nraise KeyError(5)\n").returncode != 0
    hetmpi.barrier()
