#!/bin/bash
# Every backend and library of the build keeps clauses S1 to S5 as far as its file shows them.
. "$(dirname "$0")/abi-lib.sh"
: "${NM:=nm}" "${READELF:=readelf}" "${SANITIZERS:=}" "${top_builddir:=$top_srcdir/build}"

# What the linker and the sanitizers' runtimes add is not ours.
exports() { $NM -D --defined-only "$1" | awk '{ print $3 }' | grep -vE '^__?(asan|odr_asan|ubsan|tsan|gcov|llvm|start_|stop_|bss_start)|^_(init|fini|edata|end)$'; }

one_entry() { [ "$(exports "$1")" = escrow_backend_entry_1 ] || { echo "exports: $(exports "$1")"; return 1; }; }

own_prefix() {
	exports "$1" | sed 's/@.*//' | grep -vE '^(escrow_|ESCROW_)' >"$tmp/foreign"
	[ -s "$(exports "$1" >"$tmp/all"; echo "$tmp/all")" ] || { echo 'exports nothing'; return 1; }
	[ ! -s "$tmp/foreign" ] || { cat "$tmp/foreign"; return 1; }
}

hardened() {
	$READELF -dW "$1" >"$tmp/dynamic" && $READELF -lW "$1" >"$tmp/segments" || return 1
	local rc=0
	grep -q 'FLAGS.*NOW' "$tmp/dynamic" || { echo 'no -z now'; rc=1; }
	grep -q GNU_RELRO "$tmp/segments" || { echo 'no -z relro'; rc=1; }
	grep -q 'GNU_STACK.*RWE' "$tmp/segments" && { echo 'executable stack'; rc=1; }
	grep -qE 'TEXTREL|STATIC_TLS' "$tmp/dynamic" && { grep -E 'TEXTREL|STATIC_TLS' "$tmp/dynamic"; rc=1; }
	grep -E 'R(UN)?PATH' "$tmp/dynamic" | grep -v '\[\$ORIGIN' && { echo 'a run path'; rc=1; }
	return $rc
}

nodelete() { $READELF -dW "$1" | grep -q 'FLAGS_1.*NODELETE' || { echo 'no -z nodelete'; return 1; }; }

for so in "$top_builddir"/backends/.libs/*.so; do
	[ -e "$so" ] || { skip 'backends' 'none built'; break; }
	name=${so##*/}
	check "$name exports its entry and nothing else" one_entry "$so"
	check "$name is hardened" hardened "$so"
	check "$name stays mapped" nodelete "$so"
done
lib=$top_builddir/plugin/.libs/libescrow.so
if [ -e "$lib" ]; then
	check 'libescrow exports escrow_ names only' own_prefix "$lib"
	check 'libescrow is hardened' hardened "$lib"
else
	skip 'libescrow' 'not built'
fi

# The gate itself: a module with one exported name too many, and one without hardening.
echo 'int escrow_backend_entry_1(void); int escrow_backend_entry_1(void) { return 0; }
int stray(void); int stray(void) { return 0; }' >"$tmp/bad.c"
"${cc[@]}" -shared -fPIC -Wl,-z,lazy -Wl,-z,norelro -o "$tmp/bad.so" "$tmp/bad.c"
check 'refused: a stray export' refuse one_entry "$tmp/bad.so"
check 'refused: foreign names' refuse own_prefix "$tmp/bad.so"
check 'refused: no hardening' refuse hardened "$tmp/bad.so"
check 'refused: may be unmapped' refuse nodelete "$tmp/bad.so"
plan
