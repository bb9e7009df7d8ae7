"""What is taken as an array, and what is refused, with the reason."""
import array
import ctypes
import gc

import ml_dtypes
import numpy as np
import pytest

import hetmpi
from common import TYPES, dtype, put, take, values


class Dlpack:
    """A producer of capsules that says what it is told to."""

    def __init__(self, x, device=None):
        self.x, self.device = x, device or (1, 0)

    def __dlpack__(self, **named):
        return self.x.__dlpack__(**named)

    def __dlpack_device__(self):
        return self.device


class OldDlpack(Dlpack):
    """... as it was before versions."""

    def __dlpack__(self, stream=None):
        return self.x.__dlpack__(stream=stream)


class Interface:
    def __init__(self, name, interface):
        setattr(self, name, interface)


@pytest.mark.parametrize("make", [
    lambda x: x, lambda x: x.reshape(2, 2), Dlpack, OldDlpack, memoryview, lambda x: array.array("f", x.tolist()),
    lambda x: x.astype(ml_dtypes.bfloat16)], ids=["numpy", "2-d", "dlpack", "old dlpack", "memoryview", "array", "bfloat16"])
def test_kinds(comm, make):
    x = make(np.full(4, 1.0, "float32"))
    out = make(np.zeros(4, "float32"))
    assert hetmpi.allreduce(x, out) is out
    assert [float(v) for v in np.ravel(getattr(out, "x", out))] == [comm.size] * 4


def test_bytes(comm):
    n, r = comm.size, comm.rank
    out = hetmpi.allgather(bytes([r, 7]))
    assert bytes(out) == bytes(b for q in range(n) for b in (q, 7))
    buffer = bytearray(b"abc" if r == n - 1 else b"xyz")
    assert hetmpi.bcast(buffer, n - 1) == b"abc"
    with pytest.raises(BufferError, match="recv: out: is read-only"):
        hetmpi.recv(b"abc", 0)


def test_ctypes(comm):
    x = (ctypes.c_int * 3)(1, 2, 3)
    out = (ctypes.c_int * 3)()
    hetmpi.allreduce(x, out)
    assert list(out) == [comm.size, 2 * comm.size, 3 * comm.size]


@pytest.mark.parametrize("name", TYPES)
def test_exchange(where, name):
    """hetmpi.Array by DLPack and as a buffer, in both directions."""
    x = values(name, 6, 1).reshape(2, 3)
    mine = put(x, where)
    assert mine.shape == (2, 3) and mine.dtype == name and mine.nbytes == x.nbytes and mine.where == where
    assert take(put(take(mine), where)).tobytes() == x.tobytes()
    for wrap in (Dlpack, OldDlpack):
        out = np.empty((2, 3), dtype(name))
        hetmpi.copy(out, wrap(mine, mine.__dlpack_device__()))
        assert out.tobytes() == x.tobytes()
    if where == "host" and not hasattr(ml_dtypes, name):
        assert (np.from_dlpack(mine) == x).all()
        if "complex" not in name:
            assert (np.asarray(mine) == x).all()
        view = memoryview(mine)
        assert view.shape == (2, 3) and view.strides == x.strides and bytes(view) == x.tobytes()


class Capsule:
    """Gives the one capsule that it holds."""

    def __init__(self, x):
        self.capsule, self.device = x.__dlpack__(max_version=(1, 0)), x.__dlpack_device__()

    def __dlpack__(self, **named):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def test_capsules_keep_the_memory(where):
    x = np.arange(1000, dtype="int32")
    capsule = Capsule(put(x, where))
    gc.collect()
    put(np.zeros(1000, "int32"), where)     # would take the place of what was freed
    out = np.empty_like(x)
    assert (hetmpi.copy(out, capsule) == x).all()


def test_device_memory_is_no_buffer():
    mine = hetmpi.empty(3, where="device")
    with pytest.raises(BufferError, match="copy it to the host"):
        memoryview(mine)
    with pytest.raises((BufferError, RuntimeError), match="device"):
        np.from_dlpack(mine)
    assert not hasattr(mine, "__cuda_array_interface__")    # the simulated device is not CUDA's


@pytest.mark.parametrize("x, text", [
    (np.zeros((4, 4))[:, ::2], r"allreduce: x: an array of shape \(4, 2\) with strides \(32, 16\) \(bytes\) is not contiguous"),
    (np.zeros((3, 2)).T, "not contiguous"),
    (np.zeros(8)[::-1], "not contiguous"),
    (np.broadcast_to(np.zeros(1), (3,)), "not contiguous"),
    (Dlpack(np.zeros((4, 4))[:, ::2]), r"strides \(4, 2\) \(elements\) is not contiguous"),
])
def test_layout(x, text):
    with pytest.raises(ValueError, match=text):
        hetmpi.allreduce(x, np.zeros(8))


def test_harmless_strides(comm):
    x = np.zeros((4, 1, 3))[:, ::2, :]                      # an axis of one element
    assert hetmpi.allreduce(x).shape == (4, 1, 3)
    assert hetmpi.allreduce(np.zeros((4, 0))[::2]).shape == (2, 0)


@pytest.mark.parametrize("x, text", [
    (np.zeros(2, ">f4"), "type >f are not supported"),
    (np.zeros(2, "datetime64[s]"), "not supported"),
    (np.zeros(2, [("a", "i4")]), "not supported"),
    (np.array(["a"]), "not supported"),
    (np.zeros(2, np.longdouble), "not supported"),
    (np.zeros(2, ml_dtypes.float8_e3m4), "not supported"),
    (3.5, "is no array"),
    ([1, 2], "is no array"),
])
def test_types_that_are_not_there(x, text):
    with pytest.raises(TypeError, match=text):
        hetmpi.allreduce(x, np.zeros(2))


def test_read_only():
    x = np.zeros(2)
    x.flags.writeable = False
    for out in (x, Dlpack(x)):
        with pytest.raises(BufferError, match="out: is read-only"):
            hetmpi.allreduce(np.zeros(2), out)


def test_other_devices():
    with pytest.raises(ValueError, match="x: lies on a CUDA device, and this libhetmpi is built for a simulated device"):
        hetmpi.allreduce(Dlpack(np.zeros(2), (2, 0)), np.zeros(2))
    with pytest.raises(ValueError, match="lies on a ROCm device"):
        hetmpi.allreduce(Dlpack(np.zeros(2), (10, 1)), np.zeros(2))
    with pytest.raises(ValueError, match="does not know"):
        hetmpi.allreduce(Dlpack(np.zeros(2), (8, 0)), np.zeros(2))
    x = np.zeros(2)
    gpu = Interface("__cuda_array_interface__", x.__array_interface__)
    with pytest.raises(ValueError, match="lies on a CUDA device"):
        hetmpi.allreduce(gpu, np.zeros(2))


def test_array_interface(comm):
    x = np.ones(3, "float32")
    out = hetmpi.allreduce(Interface("__array_interface__", x.__array_interface__), np.zeros(3, "float32"))
    assert out[0] == comm.size
    for wrong in ({"typestr": "<f4"}, {**x.__array_interface__, "shape": (1, 2), "strides": (4,)}, "text",
                  {**x.__array_interface__, "typestr": 5}):
        with pytest.raises(TypeError):
            hetmpi.allreduce(Interface("__array_interface__", wrong), np.zeros(3, "float32"))


def test_empty():
    with pytest.raises(TypeError, match="no elements of type float12"):
        hetmpi.empty(3, "float12")
    with pytest.raises(ValueError):
        hetmpi.empty((2, -1))
    with pytest.raises((ValueError, MemoryError)):
        hetmpi.empty((1 << 62, 1 << 62))
    assert hetmpi.empty((), "int8").shape == ()
    assert hetmpi.empty((3, 0)).nbytes == 0
