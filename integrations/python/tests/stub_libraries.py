"""Makes libraries that stand in for those of CUDA, so that torch's usual wheel loads where there is no CUDA.

For each library that torch's own need and the loader does not find: one that has every symbol that torch's libraries
take from outside, each a function that returns 100 (no device). For tests on the CPU only.

    python stub_libraries.py FOLDER_OF_TORCH OUTPUT    # then LD_LIBRARY_PATH=OUTPUT
"""
import ctypes
import pathlib
import re
import subprocess
import sys


def readelf(option, library):
    return subprocess.run(["readelf", "-W", option, library], check=True, capture_output=True, text=True).stdout


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", library))


def loads(name):
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def undefined(library):
    """The undefined symbols, as (name, version, library of that version or None)."""
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[6] == "UND" and fields[4] in ("GLOBAL", "WEAK"):
            name, _, version = fields[7].partition("@")
            yield name, version.lstrip("@")


def versions_needed(library):
    """Which library a symbol version is from."""
    source, found = None, {}
    for line in readelf("-V", library).splitlines():
        if match := re.search(r"Version: \d+\s+File: (\S+)", line):
            source = match[1]
        elif source and (match := re.search(r"Name: (\S+)\s+Flags:", line)):
            found[match[1]] = source
    return found


def defined(library):
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[6] != "UND":
            yield fields[7].partition("@")[0]


def write(output, soname, plain, versioned):
    """One library; symbols that are asked for with a version have it."""
    source, script = output / f"{soname}.c", output / f"{soname}.map"
    names = sorted(plain | {name for names in versioned.values() for name in names})
    source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in names))
    script.write_text("".join(f"{version} {{ {' '.join(f'{name};' for name in sorted(symbols))} }};\n"
                              for version, symbols in sorted(versioned.items())))
    command = ["gcc", "-w", "-O0", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", output / soname, source]
    if versioned:
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)
    source.unlink()
    script.unlink()


def main(torch, output):
    output.mkdir(parents=True, exist_ok=True)
    libraries = sorted(torch.glob("lib/*.so*"))
    own = {library.name for library in libraries}
    missing = {name for library in libraries for name in needed(library) if name not in own and not loads(name)}
    have = {name for library in libraries for name in defined(library)}
    plain, versioned = set(), {name: {} for name in missing}
    for library in libraries:
        sources = versions_needed(library)
        for name, version in undefined(library):
            if sources.get(version) in missing:
                versioned[sources[version]].setdefault(version, set()).add(name)
            elif not version and name not in have and re.fullmatch(r"\w+", name) and not name.startswith("_"):
                plain.add(name)
    for soname in sorted(missing):
        write(output, soname, plain - {name for names in versioned[soname].values() for name in names},
              versioned[soname])
        print(soname)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
