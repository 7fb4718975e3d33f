#!/bin/bash
# The clause table against the suite: every MUST has a case or a reason, every case a clause and a
# mutant, and both agree on which case asks for which clause.
set -u
table=$top_srcdir/abi/clauses.tsv
escrow=$top_builddir/tools/escrow
export ESCROW_CONFORM_CHILD=$top_builddir/tests/conform/escrow-conform-child
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0

# check NAME FILE: ok if the file, the list of what is wrong, is empty.
check() {
	n=$((n + 1))
	if [ -s "$2" ]; then
		echo "not ok $n - $1"
		sed 's/^/# /' "$2"
	else
		echo "ok $n - $1"
	fi
}

"$escrow" conform --list >"$dir/list" || { echo "Bail out! escrow conform --list fails"; exit 1; }
grep -v '^#' "$table" | tail -n +2 >"$dir/rows"

awk -F'\t' 'NF != 7 { print "line " NR ": " NF " columns, not 7" }
	{ for (i = 1; i <= NF; i++) if ($i == "") print $1 ": column " i " is empty" }
	$2 != "MUST" && $2 != "SHOULD" { print $1 ": level " $2 }
	$6 != "yes" && $6 != "no" { print $1 ": host " $6 }' "$dir/rows" >"$dir/bad"
check 'the table has its columns' "$dir/bad"

cut -f1 "$dir/rows" | sort | uniq -d >"$dir/bad"
cut -f1 "$dir/list" | sort | uniq -d >>"$dir/bad"
check 'ids are unique' "$dir/bad"

awk -F'\t' '$2 == "MUST" && $4 == "-" && $7 == "-" { print $1 ": no case and no reason" }
	$4 != "-" && $7 != "-" { print $1 ": cases, and a reason why there is none" }' \
	"$dir/rows" >"$dir/bad"
check 'every MUST has a case or a reason' "$dir/bad"

awk -F'\t' '{ m = split($4, c, " "); for (i = 1; i <= m; i++) if (c[i] != "-") print c[i] "\t" $1 }' \
	"$dir/rows" | sort >"$dir/by-table"
awk -F'\t' '{ m = split($3, c, " "); for (i = 1; i <= m; i++) print $1 "\t" c[i] }' \
	"$dir/list" | sort >"$dir/by-suite"
diff "$dir/by-table" "$dir/by-suite" >"$dir/bad"
check 'table and suite agree on the cases of each clause' "$dir/bad"

# A case of the perf profile only warns, so no mutant can be caught by it.
awk -F'\t' 'NR == FNR { if ($5 != "-") has[$1] = 1; next }
	$2 == "perf" { next }
	{ found = 0; m = split($3, c, " "); for (i = 1; i <= m; i++) found += c[i] in has
	  if (!found) print $1 ": none of its clauses has a mutant" }' \
	"$dir/rows" "$dir/list" >"$dir/bad"
check 'every case has a clause with a mutant' "$dir/bad"

awk -F'\t' '{ m = split($5, name, " "); for (i = 1; i <= m; i++) {
		if (name[i] == "-") continue
		if (split(name[i], part, "=") == 2 && index(" " $4 " ", " " part[2] " ") == 0)
			print $1 ": " name[i] " names a case of another clause"
		if (part[1] !~ /^[a-z][a-z0-9-]*$/) print $1 ": mutant " name[i] } }' \
	"$dir/rows" >"$dir/bad"
check 'mutants name cases of their clause' "$dir/bad"

awk -F'\t' '$1 !~ /^ESC-[A-Z]+-[0-9][0-9][0-9]$/ { print $1 ": not an id" }
	$2 !~ /^(static|core|data|fault|swap|thread|perf)$/ { print $1 ": profile " $2 }
	length($5) < 10 { print $1 ": no summary" }' "$dir/list" >"$dir/bad"
check 'ids, profiles and summaries of the cases' "$dir/bad"

# Each slot of the header is executed in each state; open alone needs no engine.
sed -n '/^struct escrow_ops {/,/^};/p' "$top_srcdir/abi/escrow/backend.h" |
	grep -oE '\(\*[a-z_]+\)' | tr -d '(*)' | grep -vx open | sort >"$dir/slots"
grep -v '^#' "$top_srcdir/abi/states.tsv" | tail -n +2 | cut -f1 | sort | diff "$dir/slots" - >"$dir/bad"
check 'abi/states.tsv has every slot of the header' "$dir/bad"
echo "1..$n"
