#!/bin/bash
# The kill matrix, as TAP: every mutant is caught by the case that should, and by no other. Wants make
# mutants first. KILL_MATRIX_MUTANT: only mutants of this glob.
set -u
here=backends/mock/mutants
export ESCROW_CONFORM_CHILD=$top_builddir/tests/conform/escrow-conform-child
if [ -n "${SANITIZERS:-}" ]; then
	echo '1..0 # SKIP a mutant is to be caught by the suite, not by a sanitizer'
	exit 0
fi
# A mutant that hangs is waited for, and most of the time no processor is busy: so they are run in shares.
shares=$((2 * $(nproc)))
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for ((i = 1; i <= shares; i++)); do
	{
		"$top_builddir/tools/escrow" conform --jobs 2 --share $i/$shares --kill-matrix "$top_builddir/$here/.libs" \
			--clauses "$top_srcdir/abi/clauses.tsv" --off-diagonal "$top_srcdir/$here/off-diagonal.tsv" \
			--mutant "${KILL_MATRIX_MUTANT:-*}" "$top_builddir/backends/.libs/mock.so"
		echo $? >"$dir/$i"
	} | sed -u '/^1\.\.\|^# [0-9]* mutants,/d' &
done | awk '/^(not )?ok / { sub(/ok [0-9]+/, "ok " ++n) } { print; fflush() } END { print "1.." n + 0 }'
# 77: no mutant of that glob is in the share
grep -qx 0 "$dir"/* && ! grep -vxhE '0|77' "$dir"/* | grep -q .
