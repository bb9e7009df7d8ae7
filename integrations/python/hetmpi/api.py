"""What `import hetmpi` offers: every call of libhetmpi, for anything whose elements stand in one piece of memory.

Arrays are objects with the buffer protocol (NumPy, array.array, bytearray, ...), DLPack (PyTorch, CuPy, JAX, ...),
__cuda_array_interface__ or __array_interface__; hetmpi.empty makes some. They are read and written where they are. A
collective X has four forms, as in C:

    out = X(x, ...)                       waits, without the interpreter lock
    request = iX(x, ...)                  request.wait() gives out; the request holds the arrays
    out = X_on_stream(x, ..., stream=s)   ordered in a stream of the device; returns at once
    request = X_init(x, ...)              persistent: request.start(), request.wait(), and again

`comm` is hetmpi's communicator or mpi4py's; None: all ranks (MPI is started then, if nobody has). An array `out` that is
not given is made, of x's kind. Blocks of several ranks stand one behind the other along the first axis. Errors of the
library are hetmpi.Error; arguments that Python can see to be wrong are TypeError, ValueError or BufferError."""
import atexit
import contextlib
import functools
import inspect
import struct
import sys

from . import _core
from ._core import *  # noqa: F403 (ops, ERR_ codes, classes)
from ._core import ANY_SOURCE, ANY_TAG, IN_PLACE, SUM, Array, Comm, Error

__all__ = [name for name in dir(_core) if name[0].isupper()]
_BLOCKING, _NONBLOCKING, _ON_STREAM, _PERSISTENT = range(4)


def _public(function):
    __all__.append(function.__name__)
    return function


version, build_info, setting, waitany, testall, copy = map(_public, (
    _core.version, _core.build_info, _core.setting, _core.waitany, _core.testall, _core.copy))


# Communicators

def _finish():
    # After an exception that nobody caught the other ranks would wait for this one.
    failed = not hasattr(sys, "ps1") and getattr(sys, "last_value", None) is not None
    _core.finish(failed and not isinstance(sys.last_value, SystemExit))


@functools.cache
def _mpi4py():
    """mpi4py.MPI, which must stand on the same MPI library."""
    MPI = sys.modules["mpi4py.MPI"]
    theirs, ours = MPI.Get_library_version().strip("\0\n "), _core.mpi_version().strip("\0\n ")
    if theirs != ours:
        raise RuntimeError(f"mpi4py stands on {theirs.splitlines()[0]}, libhetmpi on {ours.splitlines()[0]}: both must use "
                           "one MPI library")
    return MPI


@_public
@functools.cache
def world():
    """The communicator of all ranks. Starts MPI if nobody has; hetmpi ends it then, when Python ends."""
    if "mpi4py.MPI" in sys.modules:
        _mpi4py()
    comm = _core.world()
    atexit.register(_finish)
    return comm


def _comm(comm):
    if comm is None:
        return world()
    if isinstance(comm, Comm):
        return comm
    if "mpi4py.MPI" in sys.modules:
        MPI = _mpi4py()
        if isinstance(comm, MPI.Comm):
            return _core.comm_at(MPI._addressof(comm), comm)
    raise TypeError(f"comm: {comm!r} is no communicator of hetmpi's or mpi4py's")


@_public
def comm(of=None):
    """hetmpi's face of a communicator of mpi4py's (None: the world): attach, detach, info, abort, check, split, dup."""
    return _comm(of)


# Arrays

@_public
def empty(shape, dtype="float32", where="device"):
    """An array that is not set, in memory of this rank's device, or of the host (pinned): where="host", and wherever there
    is no device. dtype: a name, as NumPy and ml_dtypes have them."""
    if where not in ("device", "host"):
        raise ValueError(f"empty: where is {where!r}, not 'device' or 'host'")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return _core.empty(shape, dtype if isinstance(dtype, str) else dtype.name, where == "device")


def _shape(x):
    return tuple(x.shape) if hasattr(x, "shape") else memoryview(x).shape


def _like(x, shape=None):
    """A new array of x's kind."""
    if x is IN_PLACE or x is None:
        raise TypeError("out must be given where x is not an array")
    shape = _shape(x) if shape is None else shape
    if isinstance(x, Array):
        return empty(shape, x.dtype, x.where)
    package = sys.modules.get(type(x).__module__.partition(".")[0])
    if hasattr(x, "dtype") and hasattr(package, "empty"):
        return package.empty(shape, dtype=x.dtype, **({"device": x.device} if package.__name__ == "torch" else {}))
    view = memoryview(x)
    count = functools.reduce(int.__mul__, shape, 1)
    return memoryview(bytearray(count * view.itemsize)).cast(view.format, shape)


def _blocks(x, comm):
    """An array for every rank's x."""
    shape = _shape(x)
    return _like(x, (comm.size * shape[0], *shape[1:]) if shape else (comm.size,))


def _block(x, comm):
    """An array for one rank's part of x."""
    shape = _shape(x)
    if not shape or shape[0] % comm.size:
        raise ValueError(f"x of shape {shape} has no {comm.size} equal blocks along its first axis: give out")
    return _like(x, (shape[0] // comm.size, *shape[1:]))


# Collectives: each is defined once, by a function of the communicator and its own arguments that gives what is returned
# and what _core is called with.

def _forms(definition):
    name, call = definition.__name__, getattr(_core, definition.__name__)
    first, *own = inspect.signature(definition).parameters.values()

    def make(form, public, text, *more):
        def function(*args, comm=None, stream=None, info=None, **named):
            comm = _comm(comm)
            return call(form, comm, stream if form == _ON_STREAM else info, *definition(comm, *args, **named))

        keywords = [inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=None) for word in ("comm", *more)]
        signature = inspect.Signature([*own, *keywords])
        if form in (_BLOCKING, _NONBLOCKING):
            def plain(*args, comm=None, **named):
                comm = _comm(comm)
                return call(form, comm, None, *definition(comm, *args, **named))
            function = plain
        function.__name__ = function.__qualname__ = public
        function.__doc__ = text
        function.__signature__ = signature
        globals()[public] = _public(function)

    text = definition.__doc__
    make(_BLOCKING, name, text)
    make(_NONBLOCKING, f"i{name}", f"Begins {name}; the request's wait() returns what {name} returns.\n\n{text}")
    make(_ON_STREAM, f"{name}_on_stream", f"{name}, ordered in a stream. The arrays must live until the stream has passed "
         f"it; a hetmpi.Stream keeps them until it is synchronised.\n\n{text}", "stream")
    make(_PERSISTENT, f"{name}_init", f"Makes a persistent {name}: start() and wait(), again and again. info: a dict of "
         f"settings.\n\n{text}", "info")
    return globals()[name]


@_forms
def allreduce(comm, x, out=None, op=SUM):
    """The reduction of all ranks' x, in out on every rank. In place: x is out, or IN_PLACE."""
    out = _like(x) if out is None else out
    return out, x, out, op


@_forms
def reduce(comm, x, out=None, op=SUM, root=0):
    """The reduction of all ranks' x, in the root's out. Returns out, None on other ranks."""
    mine = comm.rank == root
    out = (_like(x) if out is None else out) if mine else None
    return out, x, out, op, root


@_forms
def bcast(comm, x, root=0):
    """The root's x, in everybody's x, which is returned."""
    return x, x, root


@_forms
def reduce_scatter_block(comm, x, out=None, op=SUM):
    """Block r of the reduction of all ranks' x, in rank r's out. x IN_PLACE: the input is in out, the result at its start."""
    out = _block(x, comm) if out is None else out
    return out, x, out, op


@_forms
def reduce_scatter(comm, x, counts, out=None, op=SUM):
    """As reduce_scatter_block, with counts[r] elements for rank r."""
    out = _like(x, (counts[comm.rank],)) if out is None else out
    return out, x, out, counts, op


@_forms
def allgather(comm, x, out=None):
    """Rank r's x, as block r of everybody's out. x IN_PLACE: it stands there already."""
    out = _blocks(x, comm) if out is None else out
    return out, x, out


@_forms
def allgatherv(comm, x, counts, out=None, displs=None):
    """Rank r's x, of counts[r] elements, at displs[r] of everybody's out; without displs one behind the other."""
    out = _like(x, (sum(counts),)) if out is None and displs is None else out
    return out, x, out, counts, displs


@_forms
def gather(comm, x, out=None, root=0):
    """Rank r's x, as block r of the root's out. Returns out, None on other ranks."""
    mine = comm.rank == root
    out = (_blocks(x, comm) if out is None else out) if mine else None
    return out, x, out, root


@_forms
def gatherv(comm, x, counts=None, out=None, displs=None, root=0):
    """Rank r's x, of counts[r] elements, at displs[r] of the root's out. counts, displs and out are the root's."""
    mine = comm.rank == root
    out = (_like(x, (sum(counts),)) if out is None and displs is None else out) if mine else None
    return out, x, out, counts, displs, root


@_forms
def scatter(comm, x, out=None, root=0):
    """Block r of the root's x, in rank r's out. Other ranks' x is None. At the root out may be IN_PLACE."""
    mine = comm.rank == root
    out = _block(x, comm) if out is None and mine else out
    return out, x if mine else None, out, root


@_forms
def scatterv(comm, x, counts=None, out=None, displs=None, root=0):
    """The counts[r] elements at displs[r] of the root's x, in rank r's out. x, counts and displs are the root's."""
    mine = comm.rank == root
    out = _like(x, (counts[root],)) if out is None and mine else out
    return out, x if mine else None, out, counts, displs, root


@_forms
def alltoall(comm, x, out=None):
    """Block r of rank q's x, as block q of rank r's out."""
    out = _like(x) if out is None else out
    return out, x, out


@_forms
def alltoallv(comm, x, sendcounts, recvcounts, out=None, senddispls=None, recvdispls=None):
    """sendcounts[r] elements at senddispls[r] of x to rank r, recvcounts[r] at recvdispls[r] of out from it."""
    out = _like(x, (sum(recvcounts),)) if out is None and recvdispls is None else out
    return out, x, out, sendcounts, senddispls, recvcounts, recvdispls


@_forms
def scan(comm, x, out=None, op=SUM):
    """The reduction of the ranks up to this one, in rank order."""
    out = _like(x) if out is None else out
    return out, x, out, op


@_forms
def exscan(comm, x, out=None, op=SUM):
    """The reduction of the ranks before this one. Rank 0's out is not written."""
    out = _like(x) if out is None else out
    return out, x, out, op


@_forms
def barrier(comm):
    """Ends when all ranks have entered it."""
    return (None,)


@_public
def premul_sum(scalar, dtype=None):
    """The operation that multiplies every rank's elements by its scalar, then sums. The scalar: an array of one element,
    or a number with the name of its type (integers, float16, float32, float64)."""
    if isinstance(scalar, (int, float)):
        formats = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I",
                   "uint64": "Q", "float16": "e", "float32": "f", "float64": "d"}
        dtype = getattr(dtype, "name", dtype)
        if dtype not in formats:
            raise TypeError(f"premul_sum: a number of type {dtype}: give an array of one element")
        scalar = memoryview(bytearray(struct.pack(formats[dtype], scalar))).cast(formats[dtype])
    world()
    return _core.premul_sum(scalar)


# Messages

@_public
def send(x, dest, tag=0, *, comm=None):
    """Sends x to rank dest."""
    _core.send(_BLOCKING, _comm(comm), None, None, x, dest, tag)


@_public
def isend(x, dest, tag=0, *, comm=None):
    """Begins to send x to rank dest."""
    return _core.send(_NONBLOCKING, _comm(comm), None, None, x, dest, tag)


@_public
def send_on_stream(x, dest, tag=0, *, stream=None, comm=None):
    """Sends x when the stream has come to the call."""
    _core.send(_ON_STREAM, _comm(comm), stream, None, x, dest, tag)


@_public
def recv(out, source=ANY_SOURCE, tag=ANY_TAG, *, comm=None):
    """Receives at most out's elements. Returns (source, tag, count)."""
    return _core.recv(_BLOCKING, _comm(comm), None, None, out, source, tag)


@_public
def irecv(out, source=ANY_SOURCE, tag=ANY_TAG, *, comm=None):
    """Begins to receive; the request's wait() returns (source, tag, count)."""
    return _core.recv(_NONBLOCKING, _comm(comm), None, None, out, source, tag)


@_public
def recv_on_stream(out, source, tag=0, *, stream=None, comm=None):
    """Receives when the stream has come to the call."""
    _core.recv(_ON_STREAM, _comm(comm), stream, out, out, source, tag)


@_public
def sendrecv(x, dest, out, source=ANY_SOURCE, sendtag=0, recvtag=ANY_TAG, *, comm=None):
    """Sends one message and receives another at once. Returns (source, tag, count)."""
    return _core.sendrecv(_BLOCKING, _comm(comm), None, None, x, out, dest, sendtag, source, recvtag)


# Groups and completion

@_public
@contextlib.contextmanager
def group():
    """The nonblocking calls and those on streams in this block start together, at its end."""
    _core.group_start()
    try:
        yield
    finally:
        _core.group_end()


@_public
def waitall(requests):
    """Waits for all, and returns their results. Raises the first error when all are complete."""
    results, first = [], None
    for request in requests:
        try:
            results.append(request.wait())
        except Error as error:
            first = first or error
    if first:
        raise first
    return results
