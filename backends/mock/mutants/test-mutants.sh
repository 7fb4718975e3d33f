#!/bin/bash
# The mutants that the clause table names are those that the families have; one of each family builds,
# and no two families have the same.
set -u
dir=$top_srcdir/backends/mock/mutants
n=0
ok() { # NAME RC: a TAP line
	n=$((n + 1))
	if [ "$2" = 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; fi
}

named() {
	awk -F'\t' '!/^#/ && $1 != "id" && $5 != "-" { gsub(/=[^ ]*/, "", $5); gsub(/ /, "\n", $5); print $5 }' \
		"$top_srcdir/abi/clauses.tsv" | sort -u
}
had() { # FILE...
	cat "$@" | tr -c 'A-Za-z0-9_' '\n' | sed -n 's/^MUTANT_\([a-z]\)/\1/p' | tr _ - | sort -u
}

diff <(named) <(had "$dir"/*.c) | sed -n 's/^</# no family has:/p; s/^>/# no clause names:/p' | tee /dev/stderr |
	grep -q . && rc=1 || rc=0
ok 'clauses and families have the same mutants' $rc

twice=$(for f in "$dir"/*.c; do had "$f"; done | sort | uniq -d)
[ -z "$twice" ]
ok "no mutant is in two families $twice" $?
echo "1..$n"
