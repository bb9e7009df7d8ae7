#!/bin/bash
# The manual pages: one for every exported function, links that lead somewhere, no warnings from mandoc or groff, and what
# a reader looks for. Usage: man.sh FOLDER LIBRARY
set -euo pipefail
export LC_ALL=C
pages=$1 library=$2
fail() { echo "FAILED: $*" >&2; exit 1; }

functions=$(nm -D --defined-only "$library" | awk '$3 ~ /^hetmpi_/ { print $3 }' | sort)
[ "$(wc -w <<<"$functions")" -gt 50 ] || fail "only $(wc -w <<<"$functions") functions in $library"
missing=() written=("$pages/man7/hetmpi.7" "$pages/man1/hetmpi_info.1" "$pages/man1/hetmpi_doctor.1")
for function in $functions; do
    page=$pages/man3/$function.3
    [ -f "$page" ] || { missing+=("$function"); continue; }
    target=$(sed -n '1s/^\.so //p' "$page")
    if [ -z "$target" ]; then
        written+=("$page")
        target=man3/$function.3
    fi
    grep -q "^.SH NAME" "$pages/$target" || fail "$page leads to no page"
    grep -A1 "^.SH NAME" "$pages/$target" | grep -qw "$function" || fail "$target does not name $function"
    grep -q "\b$function(" "$pages/$target" || fail "$target does not say how $function is called"
done
[ ${#missing[@]} = 0 ] || fail "no page for ${missing[*]}"
extra=$(comm -13 <(echo "$functions") <(find "$pages/man3" -name '*.3' -printf '%f\n' | sed 's/\.3$//' | sort))
[ -z "$extra" ] || fail "pages of functions that are not in the library:" $extra
grep -q "exit code 2" "$pages/man1/hetmpi_doctor.1" || fail "hetmpi_doctor(1) does not tell its exit codes"
grep -q HETMPI_ERR_MISMATCH "$pages/man7/hetmpi.7" || fail "hetmpi(7) does not list the errors"
grep -q "fBWIRE_PRECISION" "$pages/man7/hetmpi.7" || fail "hetmpi(7) does not list the settings"

looked=0
if command -v mandoc >/dev/null; then
    looked=1
    said=$(mandoc -Tlint -W warning "${written[@]}" 2>&1) || true
    [ -z "$said" ] || fail "mandoc: $(head -20 <<<"$said")"
fi
if command -v groff >/dev/null; then
    looked=1
    for page in "${written[@]}"; do
        said=$(groff -man -Tutf8 -ww "$page" 2>&1 >/dev/null) || true
        [ -z "$said" ] || fail "groff: $page: $said"
    done
fi
[ "$looked" = 1 ] || { echo "skipped: neither mandoc nor groff is here, only the list of pages was checked"; exit 77; }
