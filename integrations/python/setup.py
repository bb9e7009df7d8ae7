"""Builds hetmpi._core on an installed libhetmpi (HETMPI_ROOT, or what pkg-config finds), else on one that is built here
from the source tree that this folder stands in and shipped in the package. CMAKE_ARGS goes to that build:

    CMAKE_ARGS=-DHETMPI_BACKEND=cuda pip install ./integrations/python
"""
import os
import shlex
import shutil
import subprocess
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
SOURCE_TREE = HERE.parent.parent


def pkg_config(root, *options):
    """The words that pkg-config says of hetmpi; None where it knows of none. root: of an installed tree."""
    environment = dict(os.environ)
    if root:
        folders = [str(path.parent) for path in sorted(Path(root).glob("lib*/**/hetmpi.pc"))]
        environment["PKG_CONFIG_PATH"] = ":".join(folders)
        if not folders:
            raise SystemExit(f"HETMPI_ROOT={root}: no hetmpi.pc below it. Give the prefix of an installed hetmpi.")
    try:
        text = subprocess.run(["pkg-config", *options, "hetmpi"], env=environment, check=True, capture_output=True,
                              text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return shlex.split(text)


def build_library(work):
    """Builds and installs the library of the source tree; returns the prefix."""
    if not (SOURCE_TREE / "include/hetmpi.h").exists():
        raise SystemExit("No libhetmpi: install it and set HETMPI_ROOT to its prefix (or PKG_CONFIG_PATH), or install "
                         "this package from hetmpi's source tree, which then builds its own.")
    build, prefix = work / "libhetmpi", work / "prefix"
    off = [f"-DHETMPI_{part}=OFF" for part in ("TESTS", "EXAMPLES", "BENCHMARKS")]
    subprocess.run(["cmake", "-S", SOURCE_TREE, "-B", build, *off, *shlex.split(os.environ.get("CMAKE_ARGS", ""))],
                   check=True)
    subprocess.run(["cmake", "--build", build, "--parallel", str(os.cpu_count() or 1)], check=True)
    subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True)
    return prefix


class BuildCore(build_ext):
    """The extension, and beside it hetmpi/_where.py: what other extensions compile and link with."""

    def run(self):
        root = os.environ.get("HETMPI_ROOT")
        package = Path(self.get_ext_fullpath("hetmpi._core")).resolve().parent
        shipped = not root and pkg_config(None, "--exists") is None
        if shipped:
            root = build_library(Path(self.build_temp).resolve())
        libdir, = pkg_config(root, "--variable=libdir")
        include, = pkg_config(root, "--variable=includedir")
        mpi_cflags = [word for word in pkg_config(root, "--cflags") if word != f"-I{include}"]
        mpi_libs = [word for word in pkg_config(root, "--libs") if word not in (f"-L{libdir}", "-lhetmpi")]
        library = Path(libdir).resolve() / "libhetmpi.so"
        soname = os.path.basename(os.readlink(library))
        if shipped:
            for folder, names in (("lib", [library.with_name(soname)]), ("include", [Path(include) / "hetmpi.h"])):
                (package / folder).mkdir(parents=True, exist_ok=True)
                for name in names:
                    shutil.copy(name, package / folder / name.name)

        for extension in self.extensions:
            extension.include_dirs += [include]
            extension.extra_compile_args += mpi_cflags
            extension.extra_link_args += [str(library), *mpi_libs,
                                          "-Wl,-rpath," + ("$ORIGIN/lib" if shipped else str(library.parent))]
        super().run()
        self.write_where(package, shipped, library.parent / soname, include, mpi_cflags, mpi_libs)

    @staticmethod
    def write_where(package, shipped, library, include, mpi_cflags, mpi_libs):
        lines = ['"""Where the library is that this package was built with. Written by setup.py."""', "import os"]
        if shipped:
            lines += ["_here = os.path.dirname(os.path.abspath(__file__))",
                      f"library = os.path.join(_here, 'lib', {library.name!r})", "include = os.path.join(_here, 'include')"]
        else:
            lines += [f"library = {str(library)!r}", f"include = {str(Path(include).resolve())!r}"]
        lines += [f"mpi_cflags = {mpi_cflags!r}", f"mpi_libs = {mpi_libs!r}"]
        package.mkdir(parents=True, exist_ok=True)
        (package / "_where.py").write_text("\n".join(lines) + "\n")


setup(
    ext_modules=[Extension("hetmpi._core", sorted(glob("src/*.c", root_dir=HERE)), py_limited_api=True,
                           depends=sorted(glob("src/*.h", root_dir=HERE)),
                           define_macros=[("Py_LIMITED_API", "0x030b0000")],
                           extra_compile_args=["-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden"])],
    cmdclass={"build_ext": BuildCore},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
