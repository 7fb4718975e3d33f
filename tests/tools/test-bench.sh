#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# escrow bench on the mock and on softverbs: every output can be read and agrees with what was asked
# for, --check sees a byte that is missing, and bad values are named. How fast it was is not judged.
# Prints TAP.
set -u
escrow=$top_builddir/tools/escrow
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_RUNTIME_DIR=$dir
# shellcheck source=tests/lib/ports.sh
. "$top_srcdir/tests/lib/ports.sh"
n=0

# shellcheck source=tests/lib/say.sh
. "$top_srcdir/tests/lib/say.sh"

bench() { timeout 600 "$escrow" bench "$@"; }

# refused TEXT OPTION...: exit status 2, and the text on standard error, nothing on standard output.
refused() {
	local text=$1 rc=0
	shift
	bench -b mock "$@" >"$dir/stdout" 2>"$dir/stderr" || rc=$?
	cat "$dir/stdout" "$dir/stderr"
	[ $rc = 2 ] && [ ! -s "$dir/stdout" ] && grep -qF -- "$text" "$dir/stderr"
}

# told_once TEXT OPTION...: in one line of standard error.
told_once() {
	refused "$@" && [ "$(grep -cF -- "$1" "$dir/stderr")" = 1 ]
}

# table ROWS OPTION...: that many rows, and the configuration before them.
table() {
	local rows=$1
	shift
	bench "$@" >"$dir/table" || return 1
	cat "$dir/table"
	for word in escrow backend devices settings machine ends op size batch window threads rails lanes measured \
		warm-up memory processors unit; do
		grep -q "^$word  *[^ ]" "$dir/table" || { echo "no $word"; return 1; }
	done
	[ "$(grep -cE '^(read|write|mix) ' "$dir/table")" = "$rows" ]
}

# csv ROWS: as many fields in each row as names in the first line; ops x size = bytes.
csv() {
	local rows=$1
	shift
	bench --csv "$@" >"$dir/csv" || return 1
	cat "$dir/csv"
	awk -F, -v rows="$rows" '
		NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; fields = NF; next }
		NF != fields || $at["ops"] * $at["size"] != $at["bytes"] || $at["ops"] == 0 { bad = 1 }
		END { exit bad || NR != rows + 1 || fields < 20 }' "$dir/csv"
}

# json PERL OPTION...: the output is JSON, and PERL, which finds it in $d, is true of it.
json() {
	local test=$1
	shift
	bench --json "$@" >"$dir/json" || return 1
	head -n 60 "$dir/json"
	perl -MJSON::PP -e 'local $/; my $d = decode_json(<STDIN>); exit !('"$test"')' <"$dir/json"
}

# wrong OP TEXT: on the backend that loses a byte the comparison fails, with status 1.
wrong() {
	local rc=0
	bench -b "$top_builddir/tests/tools/.libs/spoiled.so" --op "$1" --size 4096 --iterations 10 --check \
		>"$dir/stdout" 2>"$dir/stderr" || rc=$?
	cat "$dir/stdout" "$dir/stderr"
	[ $rc = 1 ] && grep -qF "$2" "$dir/stderr"
}

# unseen: the same without the comparison passes, so it is the comparison that sees it.
unseen() { bench -b "$top_builddir/tests/tools/.libs/spoiled.so" --size 4096 --iterations 10; }

# between: one end listens, the other connects, as on two machines.
between() {
	local port source rc
	free_port || return
	bench -b mock --listen "127.0.0.1:$port" &
	source=$!
	bench -b mock --connect "127.0.0.1:$port" --size 1000 --iterations 20 --lanes 1,2 --check
	rc=$?
	wait $source && [ $rc = 0 ]
}

# unit NAME COLUMN BYTES: the column times what a unit is makes the bytes of each second.
unit() {
	bench -b mock --csv --op read --size 1M --iterations 40 --unit "$1" >"$dir/csv" || return 1
	cat "$dir/csv"
	awk -F, -v column="$2" -v unit="$3" '
		NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		{ off = $at[column] * unit * $at["seconds"] / $at["bytes"] - 1; seen++ }
		END { exit seen != 1 || off < -0.01 || off > 0.01 }' "$dir/csv"
}

# killed: the source is killed while bytes move; the requester says so and gives all back.
killed() {
	local pid source rc=0
	rm -f "$dir/stdout"
	"$escrow" bench -b mock --csv --op read --size 64K --duration 60 >"$dir/stdout" 2>"$dir/stderr" &
	pid=$!
	until [ -s "$dir/stdout" ]; do kill -0 $pid || return 1; done
	source=$(pgrep -P $pid) && kill -9 "$source"
	wait $pid || rc=$?
	cat "$dir/stdout" "$dir/stderr"
	[ $rc = 1 ] && grep -q 'PEER_LOST\|gone' "$dir/stderr" && grep -q 'every charge is back' "$dir/stderr"
}

# Each percentile is at least the one before it, and the largest is the largest.
ordered='!grep { my $t = $_; grep { my $l = $t->{$_}; $l->{p50} > $l->{p99} || $l->{p99} > $l->{p999} ||
	$l->{p999} > $l->{max} || $l->{avg} > $l->{max} } qw(post_us transfer_us) } @{$d->{points}}'

# columns: rows that differ in rails and lanes alone are told apart, below their names.
columns() {
	table 4 -b mock --op read --size 64 --rails 1,2 --lanes 0,3 --iterations 40 &&
		grep -qE '^op +rails +lanes +conn ' "$dir/table" &&
		[ "$(awk '/^read/ {print $2, $3}' "$dir/table" | paste -sd,)" = '1 default,1 3,2 default,2 3' ] &&
		# below the same bars
		[ "$(grep -E '^(op|read) .*[|]' "$dir/table" | sed 's/|.*//' | awk '{print length}' | sort -u | wc -l)" = 1 ]
}
# no_columns: one number of them is in the configuration.
no_columns() { table 1 -b mock --op read --size 64 --rails 2 --iterations 40 && grep -qE '^op +conn ' "$dir/table"; }
# small: of a speed that rounds to nothing three digits are shown.
small() {
	table 1 -b mock --op read --size 1 --window 1 --iterations 40 --baseline raw --repeat 2 --unit GiB || return 1
	awk '/^read/ { seen++; if ($8 >= 0.1) next; n = $8; sub(/e.*/, "", n); gsub(/[.]/, "", n); sub(/^0+/, "", n)
		if (length(n) != 3) bad = 1 } END { exit bad || !seen }' "$dir/table"
}

few=(--iterations 40)
ok "a table: every combination is a row" table 12 -b mock --op read,write,mix --size 64,4K --batch 1,8 "${few[@]}"
ok "rails and lanes are columns where they vary" columns
ok "... and only there" no_columns
ok "a small speed has three digits" small
ok "CSV" csv 8 -b mock --op read,write --size 1-8 "${few[@]}"
ok "JSON: ops as asked for, times in order" \
	json "@{\$d->{points}} == 4 && !(grep { \$_->{ops} != 40 } @{\$d->{points}}) && $ordered" \
	-b mock --size 64,1M --batch 4 "${few[@]}"
ok "JSON: repeats add up" json '$d->{points}[0]{ops} == 120 && $d->{ok}' -b mock --op read --size 64 --repeat 3 "${few[@]}"
ok "JSON: connections are lanes x rails" json '!grep { $_->{connections} != $_->{lanes} * $_->{rails} } @{$d->{points}}' \
	-b mock --op read --size 64 --lanes 1,3 --rails 1,2 "${few[@]}"
ok "a time instead of a number" json '!grep { $_->{seconds} < 0.05 } @{$d->{points}}' -b mock --size 64 --duration 0.05
ok "bytes are compared: threads, batches, lanes, odd sizes" \
	table 12 -b mock --op read,write,mix --size 1,4097 --threads 1,3 --batch 5 --lanes 2 --check "${few[@]}"
ok "batches that are taken in parts: nothing is lost" \
	json '!grep { $_->{retries} == 0 || $_->{ops} != 1000 } @{$d->{points}}' \
	-b mock -s send_depth=8 --op read,mix --size 64 --batch 5 --window 64 --threads 1,2 --check --iterations 1000
ok "fewer blocks than ops under way" table 6 -b mock --op read,write,mix --size 1000,4096 --window 64 --memory 8K --check "${few[@]}"
ok "bound to a processor" table 1 -b mock --op read --size 64 --pin "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" "${few[@]}"
ok "GB is 1e9 bytes" unit GB gb_per_s 1e9
ok "GiB is 2^30" unit GiB gib_per_s 1073741824
ok "Gb is 1e9 bits" unit Gb gbit_per_s 125e6
ok "a missing byte of a READ is seen" wrong read "what was read is not what the source has"
ok "a missing byte of a WRITE is seen" wrong write "what the source has is not what was written"
ok "... and only by --check" unseen
ok "two machines: one listens, one connects" between
ok "the source is killed" killed
ok "no size" refused "--size 0: 1 to 1073741824 is allowed" --size 0
ok "a size that is no number" refused "--size 12X" --size 12X
ok "an empty list" refused "--size '':" --size ''
ok "a list with a hole" refused "--batch 1,,2: 1 to 1024 is allowed, or a list such as 1,8,16-64, not ''" --batch 1,,2
ok "a range that goes down" refused "--batch 8-4: 1 to 1024" --batch 8-4
ok "a range without an end" refused "--batch 8-" --batch 8-
ok "a number beyond 64 bits" refused "--window 99999999999999999999" --window 99999999999999999999
ok "... and one that a unit makes so" refused "--window 99999999999999G" --window 99999999999999G
ok "too many threads" refused "--threads 65: 1 to 64 is allowed" --threads 65
ok "too many lanes" refused "--lanes 17: 0 to 16 is allowed" --lanes 17
ok "an unknown op" refused "--op reed: allowed: read, write, mix" --op reed
ok "an unknown unit" refused "--unit MB: allowed: GB, GiB, Gb" --unit MB
ok "a time that is no number" refused "--duration nan" --duration nan
ok "no time" refused "--duration 0: 0.001 to 86400 is allowed" --duration 0
ok "fewer than no ops" refused "--iterations -1: 1 to 1000000000000 is allowed" --iterations -1
ok "no ops" refused "--iterations 0: 1 to 1000000000000 is allowed" --iterations 0
ok "a time and a number" refused "--iterations and --duration: a point ends by one of them" --iterations 5 --duration 1
for option in op=read size=64 batch=1 window=1 threads=1 lanes=1 rails=1 duration=1 iterations=1 repeat=1 check pin=0 \
	hugepages memory=64M unit=GB csv json baseline=raw plot="$dir/x"; do
	ok "a source has no use for --$option" refused "--listen and --${option%%=*}: the requester decides" --listen 192.0.2.1:0 "--$option"
done
ok "a list with an end too many" refused "--size 64,: 1 to 1073741824 is allowed, or a list such as 64,4K,1M-8M, not ''" --size 64,
for option in "window 1,16-64" "threads 1,2-8" "lanes 1,2-8" "rails 1,2" "pin 0,2"; do
	ok "what --${option% *} may be" refused "is allowed, or a list such as ${option#* }" "--${option% *}" x
done
for list in 64K,1M 64K-1M 64K,; do
	ok "one size of memory, not $list" refused "--memory $list: 1024 to 68719476736 is allowed, one value" --size 64,1K --memory $list
done
ok "one unit" refused "--unit GB,GiB: allowed: GB, GiB, Gb" --unit GB,GiB
ok "one baseline" refused "--baseline raw,raw: allowed: raw" --baseline raw,raw
ok "ops, of which one is unknown" refused "--op read,x: allowed: read, write, mix, not x" --op read,x
ok "no repeat" refused "--repeat 0: 1 to 99 is allowed" --repeat 0
ok "a processor that is not there" refused "--pin 1023" --pin 1023
ok "memory that holds no block of each thread" refused "--memory 4K: 8192 to" --size 4K --threads 2 --memory 4K
ok "two formats" refused "--csv and --json" --csv --json
ok "two ends" refused "--listen and --connect" --listen :1 --connect h:1
ok "an address that is none" refused "bench: --connect nonsense: HOST:PORT is meant" --connect nonsense
ok "no address" refused "bench: --listen '': [HOST]:PORT is meant" --listen ''
ok "a port that is none" refused "bench: --listen :abc: port abc: 0 to 65535, or a service's name, is allowed" --listen :abc
ok "a folder without a name" refused "bench: --plot '': DIR is meant" --plot ''
ok "a backend without a name" refused "bench: --backend '': BACKEND is meant" --backend ''
ok "a setting that is none" refused "bench: --set foo: not KEY=VALUE; \`escrow info BACKEND\` lists the keys" -s foo
ok "a setting of no backend: what lists them" refused "\`escrow info mock\` lists the keys" -s xyzzy=1
ok "... told once, not by each end" told_once "unknown key" -s xyzzy=1
ok "an unknown setting" refused "num_lanes" -s num_lane=2
ok "no such backend" refused 'no backend "nonsense"' -b nonsense
ok "an argument" refused "bench takes no argument: x" x
# no_raw: the program of the raw verbs is not there.
no_raw() {
	local rc=0
	ESCROW_BENCH_RAW=$dir/none bench --baseline raw --size 64 "${few[@]}" >"$dir/stdout" 2>"$dir/stderr" || rc=$?
	cat "$dir/stdout" "$dir/stderr"
	[ $rc = 2 ] && grep -qF -- "--baseline raw: $dir/none: No such file" "$dir/stderr"
}

# pictures NAME...: each as SVG and PNG, whole.
pictures() {
	bench -b mock --size 64,4K,1M --window 1,4 --iterations 40 --plot "$dir/p" --baseline raw --repeat 2 >/dev/null || return 1
	ls -l "$dir/p"
	for name in "$@"; do
		grep -q '</svg>' "$dir/p/$name.svg" && head -c 8 "$dir/p/$name.png" | cmp - <(printf '\211PNG\r\n\032\n') ||
			return 1
		# the last chunk of a PNG
		tail -c 8 "$dir/p/$name.png" | cmp - <(printf 'IEND\256B\140\202') || return 1
	done
	grep -q "^set title 'Latency .*, window 1'" "$dir/p/bench.gp" && [ "$(ls "$dir/p" | wc -l)" = $((2 * $# + 1)) ]
}
# A machine that has everything but gnuplot.
without_gnuplot() {
	mkdir "$dir/bin"
	ln -sf /usr/bin/* /bin/* "$dir/bin/"
	rm -f "$dir/bin"/gnuplot*
	PATH=$dir/bin refused "gnuplot is not installed" --plot "$dir/none"
}
ok "--plot without gnuplot" without_gnuplot
name="--plot: bandwidth, rate, latency, and what a sweep scales with"
if ! command -v gnuplot >/dev/null; then
	skip "$name" "gnuplot is not installed"
	skip "--plot into a file" "gnuplot is not installed"
else
	ok "$name" pictures bandwidth rate latency ratio scaling-window
	ok "--plot into a file" refused "--plot $dir/stdout" --plot "$dir/stdout/x"
fi
ok "--baseline on the mock: a ratio with its spread" json '@{$d->{points}} == 4 && !grep { my $r = $_->{ratio};
	$_->{ops} != 120 || $_->{baseline}{ops} != 120 || $r->{low} > $r->{median} || $r->{median} > $r->{high} ||
	$r->{low} <= 0 } @{$d->{points}}' -b mock --baseline raw --size 64,64K --threads 2 --batch 4 --lanes 2 --repeat 3 --op read,mix "${few[@]}"
ok "... by default of five repeats" json '$d->{points}[0]{baseline}{ops} == 200' -b mock --op read --size 64 --baseline raw "${few[@]}"
ok "an unknown baseline" refused "--baseline rdma: allowed: raw" --baseline rdma
# named: which devices a pasted table is of.
named() {
	"$top_srcdir/tests/softverbs/run" --rails 2 -- timeout 600 "$escrow" bench -b "$top_builddir/backends/.libs/rdma.so" \
		--op read --size 64 --iterations 40 "$@" >"$dir/table" || return 1
	cat "$dir/table"
	grep -qE 'devices[": ]+softverbs0/1 \(driver softverbs\), softverbs1/1 \(driver softverbs\)"?,?$' "$dir/table"
}
names=("softverbs: the devices are named" "softverbs: the devices are named in JSON" "softverbs: all ops, two lanes, compared" "softverbs: raw verbs beside it" "softverbs: no program for raw verbs")
if [ -n "${SANITIZERS:-}" ]; then
	for name in "${names[@]}"; do skip "$name" "a sanitizer must be the first library of a program"; done
elif [ ! -f "$top_builddir/backends/.libs/rdma.so" ]; then
	for name in "${names[@]}"; do skip "$name" "built without the RDMA backend"; done
elif [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
	for name in "${names[@]}"; do skip "$name" "this machine has a device"; done
else
	ok "${names[0]}" named --rails 1,2
	ok "${names[1]}" named --json
	ok "${names[2]}" json "@{\$d->{points}} == 9 && $ordered" --op read,write,mix --size 64,5000,2M --lanes 2 --check "${few[@]}"
	ok "${names[3]}" json '@{$d->{points}} == 16 && !grep { $_->{baseline}{ops} != 80 || $_->{ratio}{low} <= 0 } @{$d->{points}}' \
		--baseline raw --repeat 2 --op read,mix --size 64,2M --lanes 1,2 --threads 2 --rails 2 --batch 1,4 "${few[@]}"
	ok "${names[4]}" no_raw
fi
echo "1..$n"
