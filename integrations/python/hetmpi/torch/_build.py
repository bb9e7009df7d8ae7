"""Compiles the backend for the torch that is installed, once: the result is kept, by what it was made from."""
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch

from .. import _where

SOURCES = Path(__file__).parent / "csrc"
NAME = "_hetmpi_torch"


def _compiler():
    return shlex.split(os.environ.get("CXX", "c++"))


def _command(output, source):
    """One translation unit: reading torch's headers takes most of the time."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    home = Path(torch.__file__).parent
    includes = [home / "include", home / "include/torch/csrc/api/include", sysconfig.get_paths()["include"]]
    return [*_compiler(), "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter",
            f"-std=c++{20 if version >= (2, 12) else 17}", "-fvisibility=hidden", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX",
            f"-DTORCH_EXTENSION_NAME={NAME}", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            f"-I{SOURCES}", f"-I{_where.include}",
            *(f"-isystem{path}" for path in includes), *_where.mpi_cflags, str(source), "-o", str(output), _where.library,
            f"-Wl,-rpath,{os.path.dirname(_where.library)}", *_where.mpi_libs,
            f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch_python"]


def _key():
    """Changes with everything that the result depends on."""
    compiler = subprocess.run([*_compiler(), "--version"], check=True, capture_output=True, text=True).stdout
    sources = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    parts = [sys.version, torch.__version__, compiler, " ".join(_command("", "")),
             Path(_where.include, "hetmpi.h").read_bytes(), *sources]
    return hashlib.sha256(b"\0".join(part if isinstance(part, bytes) else part.encode() for part in parts)).hexdigest()[:16]


def _cache():
    """Where torch keeps the extensions that it compiles, or where caches are."""
    base = (os.environ.get("TORCH_EXTENSIONS_DIR") or os.environ.get("XDG_CACHE_HOME") or
            os.path.join(os.path.expanduser("~"), ".cache"))
    return Path(base, "hetmpi_torch")


def build():
    """The path of the compiled backend. Processes that need it at the same time make it once."""
    folder = _cache() / _key()
    library = folder / f"{NAME}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if library.exists():
            return library
        source = folder / "all.cpp"
        source.write_text("".join(f'#include "{path.name}"\n' for path in sorted(SOURCES.glob("*.cpp"))))
        made = library.with_suffix(".made")
        result = subprocess.run(_command(made, source), capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"hetmpi: the backend does not compile for torch {torch.__version__}:\n"
                               f"{' '.join(result.args)}\n{result.stderr[-4000:]}")
        os.replace(made, library)
    return library


def load():
    library = str(build())
    loader = importlib.machinery.ExtensionFileLoader(NAME, library)
    spec = importlib.util.spec_from_file_location(NAME, library, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


if __name__ == "__main__":
    print(build())
