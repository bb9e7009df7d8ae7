"""Every collective in every form, on host and device memory, against NumPy."""
import numpy as np
import pytest

import hetmpi
from common import TYPES, dtype, put, take, values

FORMS = ["", "i", "on_stream", "init"]


def run(form, name, *args, comm=None, **named):
    """A collective in one of its forms, to its end; a persistent one twice."""
    if form == "":
        return getattr(hetmpi, name)(*args, comm=comm, **named)
    if form == "i":
        return getattr(hetmpi, "i" + name)(*args, comm=comm, **named).wait()
    if form == "on_stream":
        stream = hetmpi.Stream()
        out = getattr(hetmpi, name + "_on_stream")(*args, comm=comm, stream=stream, **named)
        stream.synchronize()
        return out
    request = getattr(hetmpi, name + "_init")(*args, comm=comm, info={"timeout": "30"}, **named)
    request.start().wait()
    out = request.start().wait()
    request.free()
    return out


@pytest.fixture(params=FORMS, ids=["blocking", "nonblocking", "on_stream", "persistent"])
def form(request):
    return request.param


@pytest.mark.parametrize("name", TYPES)
def test_types(comm, where, name):
    op = hetmpi.LOR if name == "bool" else hetmpi.SUM
    parts = [values(name, 7, r) for r in range(comm.size)]
    out = hetmpi.allreduce(put(parts[comm.rank], where), op=op)
    if name == "bool":
        expected = np.logical_or.reduce(parts)
    else:
        wide = np.complex128 if "complex" in name else np.float64
        expected = sum(part.astype(wide) for part in parts).astype(dtype(name))
    assert take(out).dtype == dtype(name)
    assert take(out).tobytes() == expected.tobytes()


@pytest.mark.parametrize("op, function", [(hetmpi.SUM, np.add), (hetmpi.PROD, np.multiply), (hetmpi.MIN, np.minimum),
                                          (hetmpi.MAX, np.maximum), (hetmpi.BAND, np.bitwise_and),
                                          (hetmpi.BOR, np.bitwise_or), (hetmpi.BXOR, np.bitwise_xor)])
def test_ops(comm, op, function):
    parts = [np.arange(5, dtype="int32") * (r + 1) + r for r in range(comm.size)]
    assert (hetmpi.allreduce(parts[comm.rank], op=op) == function.reduce(parts)).all()


def test_logic_and_average(comm):
    x = np.array([comm.rank == 0, True, False])
    assert hetmpi.allreduce(x, op=hetmpi.LAND).tolist() == [comm.size == 1, True, False]
    assert hetmpi.allreduce(x, op=hetmpi.LXOR).tolist() == [True, comm.size % 2 == 1, False]
    mean = hetmpi.allreduce(np.array([float(comm.rank)]), op=hetmpi.AVG)
    assert mean[0] == (comm.size - 1) / 2


def test_premul_sum(comm):
    x = np.full(3, comm.rank + 1, dtype="float32")
    expected = sum(0.5 * (r + 1) for r in range(comm.size))
    for scalar in (hetmpi.premul_sum(0.5, "float32"), hetmpi.premul_sum(np.float32(0.5))):
        assert (hetmpi.allreduce(x, op=scalar) == expected).all()
    with pytest.raises(hetmpi.Error) as caught:
        hetmpi.allreduce(x.astype("float64"), op=hetmpi.premul_sum(0.5, "float32"))
    assert caught.value.code == hetmpi.ERR_OP and caught.value.name == "OP"


def test_reductions(comm, where, form):
    n, r = comm.size, comm.rank
    parts = [np.arange(2 * n, dtype="float32") + q for q in range(n)]
    total = sum(parts)
    x = put(parts[r], where)
    assert (take(run(form, "allreduce", x)) == total).all()
    root = n - 1
    out = run(form, "reduce", x, root=root)
    assert (take(out) == total).all() if r == root else out is None
    assert (take(run(form, "reduce_scatter_block", x)) == total[2 * r:2 * r + 2]).all()
    counts = [q for q in range(1, n + 1)]
    own = put(parts[r][:sum(counts)] if sum(counts) <= 2 * n else np.resize(parts[r], sum(counts)), where)
    whole = sum(np.resize(p, sum(counts)) for p in parts)
    assert (take(run(form, "reduce_scatter", own, counts)) == whole[sum(counts[:r]):sum(counts[:r + 1])]).all()
    assert (take(run(form, "scan", x)) == sum(parts[:r + 1])).all()
    out = take(run(form, "exscan", x))
    assert r == 0 or (out == sum(parts[:r])).all()


def test_moves(comm, where, form):
    n, r = comm.size, comm.rank
    parts = [np.arange(6, dtype="int16").reshape(3, 2) + 10 * q for q in range(n)]
    x = put(parts[r], where)
    together = np.concatenate(parts)
    assert (take(run(form, "bcast", put(parts[r], where), n - 1)) == parts[n - 1]).all()
    out = take(run(form, "allgather", x))
    assert out.shape == (3 * n, 2) and (out == together).all()
    out = run(form, "gather", x, root=n - 1)
    assert (take(out) == together).all() if r == n - 1 else out is None
    out = hetmpi.empty((3, 2), "int16", where)
    run(form, "scatter", put(together, where) if r == 0 else None, out)
    assert (take(out) == parts[r]).all()
    blocks = np.arange(n * 2, dtype="int64") + 100 * r
    expected = np.concatenate([np.arange(2 * r, 2 * r + 2) + 100 * q for q in range(n)])
    assert (take(run(form, "alltoall", put(blocks, where))) == expected).all()
    run(form, "barrier")


def test_blocks_of_any_length(comm, where, form):
    n, r = comm.size, comm.rank
    counts = [q + 1 for q in range(n)]
    parts = [np.full(counts[q], q, dtype="float64") for q in range(n)]
    x = put(parts[r], where)
    together = np.concatenate(parts)
    assert (take(run(form, "allgatherv", x, counts)) == together).all()
    out = run(form, "gatherv", x, counts if r == 0 else None)
    assert (take(out) == together).all() if r == 0 else out is None
    # With gaps, which stay as they were.
    displs = [q * (n + 1) for q in range(n)]
    gaps = put(np.full(n * (n + 1), -1.0), where)
    run(form, "allgatherv", x, counts, gaps, displs)
    expected = np.full(n * (n + 1), -1.0)
    for q in range(n):
        expected[displs[q]:displs[q] + counts[q]] = q
    assert (take(gaps) == expected).all()
    out = hetmpi.empty(counts[r], "float64", where)
    run(form, "scatterv", put(together, where) if r == 0 else None, counts if r == 0 else None, out)
    assert (take(out) == parts[r]).all()
    # Rank q sends q + 1 elements to everybody.
    sent = put(np.full((r + 1) * n, r, dtype="float64"), where)
    out = run(form, "alltoallv", sent, [r + 1] * n, counts)
    assert (take(out) == together).all()


def test_in_place(comm, where):
    n, r = comm.size, comm.rank
    x = put(np.full(4, r + 1.0), where)
    hetmpi.allreduce(hetmpi.IN_PLACE, x)
    assert (take(x) == n * (n + 1) / 2).all()
    hetmpi.allreduce(x, x)
    assert (take(x) == n * n * (n + 1) / 2).all()
    blocks = np.zeros(n, dtype="int32")
    blocks[r] = r + 7
    blocks = put(blocks, where)
    hetmpi.allgather(hetmpi.IN_PLACE, blocks)
    assert take(blocks).tolist() == [q + 7 for q in range(n)]
    with pytest.raises(TypeError, match="out must be given"):
        hetmpi.allreduce(hetmpi.IN_PLACE)


def test_nothing(comm):
    assert hetmpi.allreduce(np.empty(0, "float32")).shape == (0,)
    assert hetmpi.allgather(np.empty((0, 3), "int8")).shape == (0, 3)


def test_wrong_counts(comm):
    x = np.zeros(4, "float32")
    with pytest.raises(ValueError, match="allreduce: out has 3 elements, not 4"):
        hetmpi.allreduce(x, np.zeros(3, "float32"))
    with pytest.raises(TypeError, match="allreduce: x has elements of type float32, and out of type float64"):
        hetmpi.allreduce(x, np.zeros(4))
    with pytest.raises(ValueError, match="one for each of the"):
        hetmpi.allgatherv(x, [4] * (comm.size + 1))
    with pytest.raises(ValueError, match="is not inside out"):
        hetmpi.allgatherv(x, [4] * comm.size, np.zeros(4 * comm.size, "float32"), [4 * q + 1 for q in range(comm.size)])


def test_wrong_arguments_are_errors(comm):
    with pytest.raises(hetmpi.Error) as caught:
        hetmpi.bcast(np.zeros(2), root=comm.size)
    assert caught.value.code == hetmpi.ERR_ROOT and "bcast" in str(caught.value)
    with pytest.raises(hetmpi.Error) as caught:
        hetmpi.allreduce(np.zeros(2), op=hetmpi.BXOR)
    assert caught.value.code == hetmpi.ERR_OP
    with pytest.raises(TypeError, match="is no operation"):
        hetmpi.allreduce(np.zeros(2), op="sum")


def test_mismatch(comm):
    if comm.size == 1:
        pytest.skip("one rank agrees with itself")
    with pytest.raises(hetmpi.Error) as caught:
        hetmpi.allreduce(np.zeros(2 + (comm.rank == 1)))
    assert caught.value.name == "MISMATCH" and "1" in str(caught.value)
    # The communicator stays usable.
    assert hetmpi.allreduce(np.ones(1))[0] == comm.size
