"""What the tests share: arrays of the ranks, in host memory and on the simulated device."""
import ml_dtypes
import numpy as np

import hetmpi

TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
         "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float32", "float64", "complex64",
         "complex128"]


def dtype(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def values(name, count, rank):
    """Small numbers, exact in every type, and so are sums of those of a few ranks."""
    numbers = (np.arange(count) * 3 + rank) % 4
    return numbers.astype(np.float32).astype(dtype(name))


def put(x, where):
    """A copy of a NumPy array, in memory of the device or the host's; NumPy's own for "numpy"."""
    if where == "numpy":
        return x.copy()
    return hetmpi.copy(hetmpi.empty(x.shape, x.dtype.name, where), x)


def take(x):
    """A NumPy array of what is anywhere."""
    if isinstance(x, np.ndarray):
        return x
    out = np.empty(x.shape, dtype(x.dtype))
    return hetmpi.copy(out, x)
