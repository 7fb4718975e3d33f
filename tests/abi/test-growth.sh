#!/bin/bash
# Against every published revision, today's headers have only grown: no constant has changed or gone,
# no struct has changed but for members after its last (abidiff over a type anchor). The gates are
# themselves tried on a legal future and on changes that must never pass.
. "$(dirname "$0")/abi-lib.sh"
today=$top_srcdir/abi

# constants OLD NEW: every macro of OLD is in NEW with the same value; the revision may rise.
constants() {
	macros "$1" | grep -v '^ESCROW_REVISION ' >"$tmp/old"
	macros "$2" | grep -v '^ESCROW_REVISION ' >"$tmp/new"
	[ -s "$tmp/old" ] || { echo "no macros in $1"; return 2; }
	comm -23 "$tmp/old" "$tmp/new" >"$tmp/gone"
	[ ! -s "$tmp/gone" ] || { echo "changed or gone:"; cat "$tmp/gone"; return 1; }
	[ "$(revision "$1")" -le "$(revision "$2")" ] || { echo "the revision fell"; return 1; }
}

# code DIR OF: those headers of DIR that OF has too, one token a line, without comments. A new header is
# a new extension: hosts ask for it by its id, so it needs no revision.
code() {
	local h files=()
	for h in "$2"/escrow/*.h; do files+=("$1/escrow/${h##*/}"); done
	perl -0777 -ne 's{/\*.*?\*/}{ }gs; print "== ", $ARGV =~ s{.*/}{}r, "\n", join("\n", split), "\n"' \
		"${files[@]}"
}

same_code() {
	code "$1" "$1" >"$tmp/old"
	code "$2" "$1" >"$tmp/new"
	diff "$tmp/old" "$tmp/new" && return
	echo 'a published revision does not change (while no release has carried it: abi/freeze -f)'
	return 1
}

# same OLD NEW: while the revision stays, so does the code; another change needs a higher revision.
same() {
	[ "$(revision "$1")" != "$(revision "$2")" ] || same_code "$1" "$2"
}

# abidiff's bits: 1 and 2 trouble of its own, 4 a change, 8 an incompatible one.
abidiff_verdict() {
	[ "$1" = 0 ] && return 0
	echo "abidiff: status $1"
	[ $(($1 & 3)) = 0 ] && return 1
	return 2
}

# layout OLD NEW: NEW, cut to the members that OLD has, has the types of OLD.
layout() {
	local cut=$tmp/cut rc=0
	rm -rf "$cut"
	perl "$top_srcdir/tests/abi/as-published" "$1" "$2" "$cut" || return 2
	anchor "$1" "$tmp/old.so" && anchor "$cut" "$tmp/new.so" "$1" || return 2
	abidiff "$tmp/old.so" "$tmp/new.so" || rc=$?
	abidiff_verdict $rc
}

# dump DIR: the frozen copy is still what its dump says.
dump() {
	anchor "$1" "$tmp/old.so" || return 2
	local rc=0
	abidiff "$1/escrow.abi" "$tmp/old.so" || rc=$?
	abidiff_verdict $rc
}

# abi/revision1.h says what the structs measured in abi/r1, of all that may grow.
sizes_of_1() {
	local s
	{
		printf '#include <escrow/%s>\n' backend.h counters.h
		echo '#include "abi/revision1.h"'
		for s in $(sed -n 's/^#define ABI_R1_LAST_\(escrow_[a-z_]*\) .*/\1/p' "$top_srcdir/abi/revision1.h"); do
			echo "_Static_assert(ABI_R1($s) == sizeof(struct $s), \"$s\");"
		done
		echo 'extern int only;'
	} >"$tmp/sizes.c"
	[ "$(grep -c _Static_assert "$tmp/sizes.c")" -ge 15 ] || return 2
	"${cc[@]}" -std=gnu11 -I"$1" -I"$top_srcdir" -fsyntax-only "$tmp/sizes.c"
}

future() {
	local dir=$tmp/$1
	perl "$top_srcdir/tests/abi/future-header" "$today" "$dir" ${2:+"$2"} && printf '%s' "$dir"
}

for r in $published; do
	name=${r##*/}
	check "$name: constants stand" constants "$r" "$today"
	check "$name: the same revision means the same code" same "$r" "$today"
	if command -v abidiff >/dev/null; then
		check "$name: the frozen copy is what its dump says" dump "$r"
		check "$name: structs have only grown at their end" layout "$r" "$today"
	else
		skip "$name: the frozen copy is what its dump says" 'no abidiff (abigail-tools)'
		skip "$name: structs have only grown at their end" 'no abidiff (abigail-tools)'
	fi
done

check 'abi/revision1.h has the sizes of revision 1' sizes_of_1 "$top_srcdir/abi/r1"
next=$(future next)
check 'and tells them from those of a future' refuse sizes_of_1 "$next"
check 'a legal future: constants' constants "$today" "$next"
padless() { # DIR: its headers hold no padding that nobody wrote
	local h s
	for h in "$1"/escrow/*.h; do printf '#include <escrow/%s>\n' "${h##*/}"; done >"$tmp/all.c"
	for s in $(structs "$1"); do printf 'extern char size_of_%s[sizeof(struct %s)];\n' "$s" "$s"; done >>"$tmp/all.c"
	"${cc[@]}" -std=c11 -Wall -Wextra -Wpadded -Werror -I"$1" -fsyntax-only "$tmp/all.c"
}
check 'a legal future: no padding' padless "$next"
check 'a legal future: it does need its new revision' refuse same_code "$today" "$next"
for c in renumber drop; do
	dir=$(future $c $c) && check "refused: $c" refuse constants "$today" "$dir"
	check "refused: $c under the same revision" refuse same "$today" "$dir"
done
if command -v abidiff >/dev/null; then
	check 'a legal future: layout' layout "$today" "$next"
	for c in insert swap signature frozen; do
		dir=$(future $c $c) && check "refused: $c" refuse layout "$today" "$dir"
	done
else
	skip 'a legal future: layout' 'no abidiff (abigail-tools)'
fi
plan
