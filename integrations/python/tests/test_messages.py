"""Messages, requests, groups."""
import gc
import threading
import time

import numpy as np
import pytest

import hetmpi
from common import put, take


def test_ring(comm, where):
    n, r = comm.size, comm.rank
    comm.attach()
    x = put(np.array([r, 5], dtype="int32"), where)
    out = put(np.zeros(3, dtype="int32"), where)
    status = hetmpi.sendrecv(x, (r + 1) % n, out, (r - 1) % n)
    assert (status.source, status.count) == ((r - 1) % n, 2)
    assert take(out).tolist() == [(r - 1) % n, 5, 0]


def test_nonblocking(comm, where):
    n, r = comm.size, comm.rank
    outs = [put(np.zeros(1), where) for _ in range(n)]
    receives = [hetmpi.irecv(out, q, tag=q) for q, out in enumerate(outs)]
    sends = [hetmpi.isend(put(np.array([10.0 * r]), where), q, tag=r) for q in range(n)]
    hetmpi.waitall(sends)
    left = set(range(n))
    while left:
        left.remove(hetmpi.waitany(receives))
    assert hetmpi.waitany(receives) is None
    assert hetmpi.testall(receives)
    for q, (request, out) in enumerate(zip(receives, outs)):
        assert request.wait() == (q, q, 1)
        assert take(out)[0] == 10 * q


def test_any_source(comm):
    n, r = comm.size, comm.rank
    if r:
        hetmpi.send(np.array([r], "uint8"), 0, tag=r)
    else:
        out = np.zeros(1, "uint8")
        got = set()
        for _ in range(n - 1):
            status = hetmpi.recv(out)
            assert out[0] == status.source == status.tag
            got.add(status.source)
        assert got == set(range(1, n))
    hetmpi.barrier()        # the next test's messages must not come in here


def test_truncated(comm):
    r = comm.rank
    request = hetmpi.isend(np.zeros(4, "int8"), r, tag=3)
    with pytest.raises(hetmpi.Error) as caught:
        hetmpi.recv(np.zeros(2, "int8"), r, 3)
    assert caught.value.name == "TRUNCATE"
    request.wait()


def test_streams_in_a_group(comm, where):
    n, r = comm.size, comm.rank
    stream = hetmpi.Stream()
    out = put(np.zeros(2), where)
    with hetmpi.group():
        hetmpi.send_on_stream(put(np.array([r, 1.0]), where), (r + 1) % n, stream=stream)
        hetmpi.recv_on_stream(out, (r - 1) % n, stream=stream)
    stream.synchronize()
    assert take(out).tolist() == [(r - 1) % n, 1.0]


def test_waiting_inside_a_group_is_an_error(comm):
    with hetmpi.group():
        request = hetmpi.iallreduce(np.ones(2))
        with pytest.raises(hetmpi.Error) as caught:
            request.wait()
        assert caught.value.name == "STATE"
    assert request.wait().tolist() == [comm.size, comm.size]


def test_forgotten_request_keeps_its_arrays(comm):
    buffer = bytearray(8)
    request = hetmpi.ibarrier()
    # A barrier cannot end before all have come: rank 0 comes last, so the others' calls are forgotten under way.
    request.wait()
    if comm.rank == 0:
        time.sleep(0.05)
    forgotten = hetmpi.iallreduce(hetmpi.IN_PLACE, buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"more")          # it is lent while the call is under way
    del forgotten
    gc.collect()
    hetmpi.barrier()
    hetmpi.iallreduce(np.zeros(1)).wait()
    hetmpi.iallreduce(np.zeros(1)).wait()
    buffer.extend(b"more")


def test_persistent_reads_again(comm):
    x, out = np.zeros(2), np.zeros(2)
    request = hetmpi.allreduce_init(x, out)
    for i in range(3):
        x[:] = i
        assert request.start().wait() is out
        assert out[0] == i * comm.size
        with pytest.raises(hetmpi.Error):
            request.start().start()
        request.wait()
    request.free()
    with pytest.raises(ValueError, match="was not freed"):
        request.start()


def test_test(comm):
    request = hetmpi.iallreduce(np.ones(1))
    while not request.test():
        pass
    assert request.test() and request.wait()[0] == comm.size


def test_lock_is_free_while_waiting(comm):
    """One thread waits for a message that another thread of the same rank sends."""
    comm = comm.dup().attach()
    out = np.zeros(1)
    receiver = threading.Thread(target=hetmpi.recv, args=(out, comm.rank, 9), kwargs={"comm": comm})
    receiver.start()
    time.sleep(0.02)
    hetmpi.send(np.array([4.0]), comm.rank, 9, comm=comm)
    receiver.join(10)
    assert not receiver.is_alive() and out[0] == 4
    comm.free()
