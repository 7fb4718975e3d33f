# abi/states.tsv as rows of the table in state.c.
BEGIN { FS = "\t" }
/^#/ || NF == 0 { next }
$1 == "slot" {
	want = "OPEN QUIESCED DRAINING DRAINED CLOSING QUARANTINED FAILED CLOSED"
	got = $2
	for (i = 3; i <= NF; i++)
		got = got " " $i
	if (got != want) {
		print "states.tsv: columns are " got > "/dev/stderr"
		exit 1
	}
	next
}
{
	row = ""
	for (i = 2; i <= NF; i++)
		row = row $i
	printf "\t{\"%s\", \"%s\"},\n", $1, row
}
