#!/bin/bash
# Each public header compiles alone, as every language it promises, without a warning and without
# padding that nobody wrote; it defines no name but its own.
. "$(dirname "$0")/abi-lib.sh"
abi=$top_srcdir/abi
warn=(-Wall -Wextra -Wpadded -Werror)

# The sizes are asked for because clang lays a struct out, and sees its padding, only when it must.
alone() { # COMPILER... with the header's name in $header
	{
		printf '#include <escrow/%s>\nextern int only;\n' "$header"
		for s in $(structs "$abi"); do
			grep -q "^struct $s {" "$abi/escrow/$header" &&
				printf 'extern char size_of_%s[sizeof(struct %s)];\n' "$s" "$s"
		done
	} | "$@" "${warn[@]}" -I"$abi" -fsyntax-only - || return 1
}

# What the header adds to what stddef.h and stdint.h bring.
names() {
	local base='#include <stddef.h>\n#include <stdint.h>\n'
	printf "$base" | "${cc[@]}" -std=c11 -dM -E -x c - | sort >"$tmp/base"
	printf "$base#include <escrow/$header>\n" | "${cc[@]}" -I"$top_srcdir/abi" -std=c11 -dM -E -x c - |
		sort | comm -13 "$tmp/base" - | grep -v '^#define ESCROW_'
}

for header in $(cd "$top_srcdir/abi/escrow" && ls); do
	for std in c11 c17; do check "$header as $std" alone "${cc[@]}" -std=$std -x c; done
	check "$header as c90 -pedantic" alone "${cc[@]}" -std=c90 -pedantic -x c
	if [ -n "${HEADER_CXX:-}" ]; then
		check "$header as c++11" alone "$HEADER_CXX" -std=c++11 -x c++
	else
		skip "$header as c++11" 'no C++ compiler'
	fi
	check "$header defines ESCROW_ macros only" refuse names
done

# The gate itself: a hole in a struct does not pass.
header=backend.h
abi=$tmp/abi
mkdir -p "$abi/escrow" && cp "$top_srcdir"/abi/escrow/*.h "$abi/escrow"
sed -i 's/^struct escrow_kv {$/&\n\tuint32_t hole;/' "$abi/escrow/backend.h"
check 'padding is refused' refuse alone "${cc[@]}" -std=c11 -x c
plan
