#!/bin/bash
# Makes the virtual environment of the package's tests: what requirements.txt names, and the package itself, built on the
# library that was built in BUILD. Both only when something changed. Exit code 77, with the reason, where it cannot be had.
# Usage: venv.sh PYTHON BUILD WORK    (leaves WORK/venv/bin/python)
set -uo pipefail
python=$1 build=$(realpath "$2") work=$(realpath -m "$3")
here=$(cd "$(dirname "$0")" && pwd)
package=$(dirname "$here")

skip() { echo "skipped: $*"; exit 77; }

mkdir -p "$work" || exit 1
pip=("$work/venv/bin/python" -m pip --disable-pip-version-check -q)
if ! cmp -s "$here/requirements.txt" "$work/requirements.txt"; then
    rm -rf "$work/venv" "$work/package"
    "$python" -m venv "$work/venv" >"$work/venv.log" 2>&1 || skip "$python has no venv (see $work/venv.log)"
    timeout 300 "${pip[@]}" install -r "$here/requirements.txt" >>"$work/venv.log" 2>&1 ||
        skip "the packages of requirements.txt cannot be had (see $work/venv.log)"
    cp "$here/requirements.txt" "$work/"
fi

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || exit 1
# The tests are not part of the package; what was built of it before is made again where a source is newer.
fresh=$work/package.new
rm -rf "$fresh" && cp -rp "$package" "$fresh" && rm -rf "$fresh/tests" "$fresh/build" "$fresh"/*.egg-info || exit 1
cp "$work/prefix/include/hetmpi.h" "$fresh/" || exit 1
find "$fresh" -name __pycache__ -prune -exec rm -r {} +
if ! diff -rq "$fresh" "$work/package" >/dev/null 2>&1; then
    rm -rf "$work/package" "$work/built"
    cp -rp "$fresh" "$work/built"
    HETMPI_ROOT=$work/prefix "${pip[@]}" install --no-build-isolation --no-deps --force-reinstall \
        "$work/built" >"$work/package.log" 2>&1 || { cat "$work/package.log"; exit 1; }
    mv "$fresh" "$work/package"
fi
