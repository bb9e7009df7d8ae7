#!/bin/bash
# Installs into a folder, moves it, and uses what is there as a user would: what is exported, the header in C and C++,
# and examples/hello_allreduce.c, built through pkg-config and through find_package and run on two ranks.
# Usage: tree.sh SOURCE BUILD CC MPIEXEC [SANITIZERS]
set -euo pipefail
export LC_ALL=C
source=$1 build=$2 cc=$3 mpiexec=$4 sanitize=${5:-}
hello=$source/examples/hello_allreduce.c

fail() { echo "FAILED: $*" >&2; exit 1; }
has() { [[ $1 == *"$2"* ]]; }   # not grep -q, which breaks the pipe that it reads

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/first
cmake --install "$build" --prefix "$prefix" >"$work/log" || { cat "$work/log"; fail "cmake --install"; }
library=$(find "$prefix" -name libhetmpi.so.0)
[ -n "$library" ] || fail "libhetmpi.so.0 is not there"
libdir=$(dirname "$library")
for file in include/hetmpi.h bin/hetmpi_info bin/hetmpi_doctor; do
    [ -f "$prefix/$file" ] || fail "$file is not there"
done
! command -v python3 >/dev/null || [ -f "$prefix/share/man/man3/hetmpi_allreduce.3" ] || fail "no manual pages"
[ -f "$libdir/pkgconfig/hetmpi.pc" ] || fail "hetmpi.pc is not there"
has "$(readelf -d "$library")" 'soname: [libhetmpi.so.0]' || fail "the library's soname is not libhetmpi.so.0"
"$prefix/bin/hetmpi_info" >"$work/info" || fail "hetmpi_info"

# The move shows that nothing in the tree holds the place it was installed to.
mv "$prefix" "$work/second"
prefix=$work/second
libdir=$prefix/${libdir#"$work/first/"}
library=$libdir/libhetmpi.so.0
"$prefix/bin/hetmpi_doctor" --help >"$work/help" || fail "hetmpi_doctor does not find its library"
export PKG_CONFIG_PATH=$libdir/pkgconfig
flags=()
[ -z "$sanitize" ] || flags=("-fsanitize=$sanitize")
read -ra cflags <<<"$(pkg-config --cflags hetmpi)"
read -ra libs <<<"$(pkg-config --libs hetmpi)"

nm -D --defined-only "$library" | awk '{ print $3 }' | sort >"$work/exported"
if grep -v '^hetmpi_' "$work/exported"; then fail "these are exported too"; fi
# Every function of the header, macros expanded: a hetmpi_ name followed by "(", outside comments.
"$cc" "${cflags[@]}" -E -P "$prefix/include/hetmpi.h" |
    grep -o '\<hetmpi_[a-z0-9_]* *(' | tr -d ' (' | sort -u >"$work/declared"
[ "$(wc -l <"$work/declared")" -gt 50 ] || fail "only $(wc -l <"$work/declared") functions were found in hetmpi.h"
missing=$(comm -23 "$work/declared" "$work/exported")
[ -z "$missing" ] || fail "declared but not in the library:" $missing
undeclared=$(comm -13 "$work/declared" "$work/exported")
[ -z "$undeclared" ] || fail "in the library but not declared:" $undeclared

echo '#include <hetmpi.h>' >"$work/header.c"
"$cc" -std=c11 -pedantic-errors -Wall -Wextra -Werror "${cflags[@]}" -fsyntax-only "$work/header.c" ||
    fail "hetmpi.h in C11"
if command -v c++ >/dev/null; then
    # MPI's own C++ bindings give warnings.
    c++ -x c++ -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -Wall -Wextra -Werror "${cflags[@]}" \
        -fsyntax-only "$work/header.c" || fail "hetmpi.h in C++"
fi

[ -f "$hello" ] || { echo "skipped: examples/hello_allreduce.c is not there"; exit 77; }
run() { HETMPI_TEST_RANKS=2 "$mpiexec" -n 2 "$@" || fail "$1 on two ranks"; }

"$cc" "${flags[@]}" "${cflags[@]}" "$hello" -o "$work/hello" "${libs[@]}" -Wl,-rpath,"$libdir" ||
    fail "with pkg-config"
has "$(ldd "$work/hello")" "libhetmpi.so.0 => $libdir/" || fail "hello: not the installed library"
run "$work/hello"

cmake -S "$source/tests/install/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DHELLO="$hello" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="${flags[*]}" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "find_package"; }
cmake --build "$work/consumer" >"$work/log" 2>&1 || { cat "$work/log"; fail "build with the CMake package"; }
has "$(ldd "$work/consumer/hello")" "libhetmpi.so.0 => $libdir/" || fail "consumer/hello: not the installed library"
run "$work/consumer/hello"

# Only where the other MPI is installed: a project that uses it must be told, not crash when it runs.
other=mpich
has "${libs[*]}" mpich && other=openmpi
if command -v "mpicc.$other" >/dev/null; then
    if cmake -S "$source/tests/install/consumer" -B "$work/other" -DCMAKE_PREFIX_PATH="$prefix" -DHELLO="$hello" \
        -DCMAKE_C_COMPILER="$cc" -DMPI_EXECUTABLE_SUFFIX=".$other" >"$work/log" 2>&1; then
        fail "a project that uses $other found a hetmpi of another MPI"
    fi
    grep -q "hetmpi was built with the MPI library" "$work/log" || { cat "$work/log"; fail "no reason was given"; }
fi
