# SPDX-License-Identifier: BSD-2-Clause
# abi/states.tsv and abi/clauses.tsv, in this order -> escrow-abi(7) in scdoc.
function esc(s) { gsub(/\\/, "\\\\", s); gsub(/[_*[#|]/, "\\\\&", s); return s }
BEGIN {
	FS = "\t"
	print "escrow-abi(7) \"Escrow\" \"Escrow backend ABI\""
	print "\n# NAME\n\nescrow-abi - the rules between a transfer engine and a backend"
	print "\n# DESCRIPTION\n"
	print "The contract is the header *escrow/backend.h*; *escrow\\_backend*(3) shows it slot by slot."
	print "This page lists what it demands in numbered clauses. *escrow conform* judges a backend by"
	print "them; each clause names the cases that check it and the mutants, backends wrong on purpose,"
	print "that those cases must catch."
	print "\n## Growth\n"
	print "The revision is one integer, now 1. A host names the lowest and the highest revision it"
	print "knows, the backend chooses the highest it knows in between. Structs that start with their"
	print "size grow at the end only; a writer never goes beyond the caller's size; a reader takes a"
	print "missing tail as zero and refuses a tail that it does not know and that is not zero."
	print "\n## Who may call what when\n"
	print "_y_: legal; _-_: *ESCROW\\_E\\_STATE*, without effect.\n\n```"
}
/^#/ { next }
FILENAME ~ /states\.tsv$/ {
	printf "%-18s", $1
	for (i = 2; i <= NF; i++) printf "%-12s", $i
	print ""
	next
}
FNR == 1 || !in_clauses { if (!in_clauses) { print "```\n\n# CLAUSES"; in_clauses = 1 } }
$1 == "id" { next }
{
	print "\n*" esc($1) "* (" $2 ")"
	print "\t" esc($3)
	line = ""
	if ($4 != "-") line = "Cases: " $4 ". "
	if ($5 != "-") line = line "Mutants: " $5 ". "
	if ($6 == "yes") line = line "Also checked by libescrow at run time. "
	if ($7 != "-" && $7 != "") line = line "No case: " $7 "."
	if (line != "") print "\n\t" esc(line)
}
END {
	print "\n# SEE ALSO\n\n*escrow\\_backend*(3), *escrow-conform*(1), *libescrow*(3)"
}
