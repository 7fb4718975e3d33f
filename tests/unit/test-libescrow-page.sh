#!/bin/bash
# libescrow's header, version script, library and manual page name the same functions.
set -u
header=$(grep -ozP 'ESCROW_API[^;(]*?\bescrow_\w+(?=\()' "$top_srcdir/plugin/escrow.h" | tr '\0' '\n' |
	grep -oP '\bescrow_\w+$' | sort -u)
map=$(sed -n 's/^\t\(escrow_[a-z_]*\);$/\1/p' "$top_srcdir/plugin/libescrow.map" | sort -u)
page=$(grep -oP '\*\Kescrow_\w+(?=\*\(\))' "$top_srcdir/docs/libescrow.3.scd" | sort -u)
n=0
same() {
	n=$((n + 1))
	if [ -n "$3" ] && [ "$2" = "$3" ]; then
		echo "ok $n - $1"
	else
		diff <(echo "$2") <(echo "$3") | sed 's/^/# /'
		echo "not ok $n - $1"
	fi
}
same 'the version script has the functions of the header' "$header" "$map"
same 'libescrow(3) has the functions of the header' "$header" "$page"
so=$top_builddir/plugin/.libs/libescrow.so
# shellcheck disable=SC2086 # NM may come with an option
same 'the library exports the functions of the header' "$header" \
	"$($NM -D --defined-only "$so" | sed -n 's/.* T \(escrow_[a-z_]*\).*/\1/p' | sort -u)"
echo "1..$n"
