"""Collectives for MPI jobs on GPUs of different vendors, for everything that holds its elements in one piece of memory:
NumPy, CuPy and PyTorch arrays, buffers, DLPack. Names are loaded when first used, so that `import hetmpi` alone (which
`import torch` does, to find hetmpi.torch) loads no MPI."""
import importlib

__version__ = "0.1.0"


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(f"module 'hetmpi' has no attribute {name!r}")
    api = importlib.import_module("hetmpi.api")
    try:
        value = getattr(api, name)
    except AttributeError:
        raise AttributeError(f"module 'hetmpi' has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(importlib.import_module("hetmpi.api").__all__))
