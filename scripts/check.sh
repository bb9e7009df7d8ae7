#!/bin/bash
# Configures, builds and tests presets one after the other, all of them even if one fails, and ends with the sums of all
# ctest runs, written as ctest writes them. Usage: [WERROR=ON] [JOBS=n] check.sh PRESET...
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
summary=() failed=0 total=0 broken=0

for preset in "$@"; do
    start=$SECONDS
    echo "== $preset"
    # Without a GPU, what the vendors' compilers and libraries say; the stand-ins in `sim` are what runs (tests/fake).
    targets=()
    case $preset in cuda* | hip*) targets=(--target hetmpi hetmpi_info) ;; esac
    if ! cmake --preset "$preset" -DHETMPI_WERROR="${WERROR:-OFF}" ||
       ! cmake --build --preset "$preset" -j "$jobs" "${targets[@]}"; then
        summary+=("$preset: does not build")
        broken=1
        continue
    fi
    options=(-j "$jobs")
    # Every test runs in the preset sim or host at least; elsewhere only what can show something new there. Sanitizers need
    # several times the memory and time. The second MPI's ranks spin: eight on two cores take minutes.
    case $preset in
    cuda* | hip*) options+=(-R tools.no_device) ;;
    host) options+=(-LE "one_thread") ;;
    *clang*) options+=(-L "unit|fuzz" -LE "one_thread") ;;
    *asan*) options+=(-LE "big|bench|planted|many") ;;
    *tsan*) options+=(-LE "big|bench|planted|many|one_thread|fake") ;;
    *-mpich) options+=(-LE "unit|bench|many|fake") ;;
    esac
    ctest --preset "$preset" "${options[@]}" | tee "build/$preset/check.log"
    status=${PIPESTATUS[0]}
    line=$(sed -n 's/^.* \([0-9]*\) tests failed out of \([0-9]*\)$/\1 \2/p' "build/$preset/check.log" | tail -1)
    if [ -z "$line" ]; then
        summary+=("$preset: ctest did not finish (status $status)")
        broken=1
        continue
    fi
    read -r bad all <<<"$line"
    failed=$((failed + bad)) total=$((total + all))
    [ "$status" = 0 ] || [ "$bad" != 0 ] || broken=1
    summary+=("$preset: $bad of $all tests failed, $((SECONDS - start)) s")
done

echo
printf '%s\n' "${summary[@]}" ""
passed=0
[ "$total" = 0 ] || passed=$(((total - failed) * 100 / total))
echo "$passed% tests passed, $failed tests failed out of $total"
[ "$failed" = 0 ] && [ "$broken" = 0 ] && [ "$total" != 0 ]
