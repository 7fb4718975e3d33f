#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# ./dev bench, without its guest: what summary makes of samples whose medians and ratios are known, and
# what run says to bad options. Prints TAP.
set -u
here=$top_srcdir/tests/bench
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# shellcheck source=tests/lib/ports.sh
. "$top_srcdir/tests/lib/ports.sh"
n=0

# shellcheck source=tests/lib/say.sh
. "$top_srcdir/tests/lib/say.sh"

refused() {
	local text=$1 rc=0
	shift
	bash "$here/run" "$@" >"$dir/stdout" 2>"$dir/stderr" || rc=$?
	cat "$dir/stdout" "$dir/stderr"
	[ $rc = 2 ] && grep -qF -- "$text" "$dir/stderr"
}

# Three rounds: Escrow and perftest halve their speed from round to round, Escrow 10 % behind, so every
# ratio is 0.9 though the values differ; UCX is missing in one round; a latency is better when smaller.
for round in 1 2 3; do
	speed=$((4000000 >> round))
	printf '%s\t%s\t%s\t%s\t%s\t%s\n' $round escrow write bandwidth 4096 $((speed * 9 / 10)) \
		$round perftest write bandwidth 4096 $speed $round escrow read latency 64 200 $round raw read latency 64 100 \
		$round escrow pingpong latency 64 50 $round libfabric pingpong latency 64 40 \
		$round 1_rails write rails 65536 $speed $round 2_rails write rails 65536 $((speed * 3 / 2))
	printf '%s\t%s\tgrant*16\trate\t4096\t%s\n' $round escrow $((speed / 1000)) $round raw $((speed / 500))
	[ $round = 2 ] || printf '%s\tucx\twrite\tbandwidth\t4096\t%s\n' $round $((speed * 9 / 10 / round))
done >"$dir/samples.tsv"
printf 'rounds\t3\n' >"$dir/configuration.tsv"
printf 'round 2: ucx write 4096: it broke\n' >"$dir/failures"
echo '{"compiler": "GNU C17 12.2", "rows": [{"name": "slice-1-1", "what": "1 parent of 64 B a call", "ours": 900, "raw": 100.4, "over": 799.6,
	"budget": 200}]}' >"$dir/instructions.json"
printf '%s\n' 'ok 1 - among 1 regions: 900.0 instructions (among 1: 900.0)' 'not ok 2 - among 10000 regions: 1000.5 instructions (among 1: 900.0)' \
	'1..2' >"$dir/sweep"
perl "$here/summary" "$dir" || exit 1

# json PERL: true of the object $d, with %r its rows by op, metric and size.
json() {
	perl -MJSON::PP -e 'sub near { abs($_[0] / $_[1] - 1) < 1e-9 } local $/; my $d = decode_json(<STDIN>);
		my %r = map { ("$_->{op} $_->{metric} $_->{size}" => $_) } @{$d->{table}}; exit !do { '"$1"' }' <"$dir/comparison.json"
}
ok "median, lowest and highest" json 'my $m = $r{"write bandwidth 4096"}{perftest};
	$m->{n} == 3 && $m->{median} == 1000000 && $m->{low} == 500000 && $m->{high} == 2000000'
ok "a ratio is of one round" json 'my $q = $r{"write bandwidth 4096"}{perftest}{escrow_ratio};
	near($q->{median}, 0.9) && near($q->{low}, 0.9) && near($q->{high}, 0.9)'
ok "a round without one of them gives no ratio" json 'my $q = $r{"write bandwidth 4096"}{ucx}{escrow_ratio};
	$q->{n} == 2 && near($q->{low}, 1) && near($q->{high}, 3) && near($q->{median}, 2)'
ok "twice the latency is half as good" json 'near($r{"read latency 64"}{raw}{escrow_ratio}{median}, 0.5)'
ok "instructions stand beside them" json '$d->{instructions}{rows}[0]{over} == 799.6 && @{$d->{sweep}} == 2 &&
	$d->{sweep}[1]{count} == 10000 && $d->{sweep}[1]{instructions} == 1000.5 && !$d->{sweep}[1]{flat} && $d->{sweep}[0]{flat} &&
	$d->{sweep}[0]{what} eq "regions"'
ok "in the table too" grep -qE '^\| 1 parent of 64 B a call +\| 900 +\| 100 +\| 800 +\| 200 ' "$dir/comparison.txt"
ok "and the sweep" grep -qE '^\| 10000 regions +\| 1000 +\| 900 ' "$dir/comparison.txt"
ok "a message is not compared with a WRITE" json '!exists $r{"pingpong latency 64"}{libfabric}{escrow_ratio} &&
	$r{"pingpong latency 64"}{libfabric}{median} == 40'
ok "two rails stand beside one" json '@{$d->{rails}} == 1 && near($d->{rails}[0]{ratio}{median}, 1.5) && $d->{rails}[0]{one}{median} == 1000000'
ok "in a table of their own" grep -qE '^\| write bandwidth, MB/s +\| 64 KiB +\| 1.00 +\| 1.50 +\| 1.50 \(1.50..1.50\) ' "$dir/comparison.txt"
ok "pairs of grant and revocation: more is better" json 'near($r{"grant*16 rate 4096"}{raw}{escrow_ratio}{median}, 0.5)'
ok "all samples, the configuration and what failed are kept" json '@{$d->{samples}} == 32 && $d->{configuration}{rounds} eq "3" &&
	@{$d->{failures}} == 1'
ok "the table has each row" grep -q '^| write bandwidth, MB/s *| 4 KiB *| 0.90 *| - *| 1.00 ' "$dir/comparison.txt"
ok "... and that of the grants" grep -q '^| grant\*16 rate, pairs/s *| 4 KiB *| 1000 *| 2000 *|.*| 0.50 (0.50..0.50) ' "$dir/comparison.txt"
ok "the script of the pictures names them" grep -q "set output 'bandwidth-write.'" "$dir/comparison.gp"
name="gnuplot takes the script"
if command -v gnuplot >/dev/null; then
	pictures() { (cd "$dir" && gnuplot comparison.gp && grep -q '</svg>' bandwidth-write.svg ratio-write.svg latency-read.svg); }
	ok "$name" pictures
else
	n=$((n + 1))
	echo "ok $n - $name # SKIP gnuplot is not installed"
fi
# The programs of ours that it starts beside Escrow, on softverbs: they move, and say what run reads.
soft() { SOFTVERBS_DIR=$dir/soft timeout 600 bash "$top_srcdir/tests/softverbs/run" --rails 1 -- "$@"; }
mkdir -p "$dir/soft"
mkfifo "$dir/nap"
moved() { # OP
	local port lender hex
	free_port || return
	soft "$top_builddir/tests/bench/fabric" "$1" $port 4096 16 200 &
	lender=$!
	hex=$(printf ':%04X ' $port)
	until grep -q "$hex.* 0A " /proc/net/tcp; do
		kill -0 $lender || return 1
		read -r -t 0.05 <>"$dir/nap" || true
	done
	soft "$top_builddir/tests/bench/fabric" "$1" $port 4096 16 200 127.77.0.1 >"$dir/moved" && wait $lender &&
		cat "$dir/moved" && grep -Eq '^4096 200 [0-9.]+ [0-9.]+$' "$dir/moved"
}
pairs() {
	ESCROW_TEST_RAILS=softverbs0:1:127.77.0.1 soft "$top_builddir/tests/bench/grant" 1 3 >"$dir/pairs"
	cat "$dir/pairs"
	[ "$(grep -cE '^1	(escrow|raw)	grant\*(1|16)	rate	(4096|262144)	[0-9.e+]+$' "$dir/pairs")" = 8 ]
}
alone() {
	ESCROW_TEST_RAILS=softverbs0:1:127.77.0.1 soft "$top_builddir/tests/bench/lone" 4096 2 50 >"$dir/lone"
	cat "$dir/lone"
	[ "$(grep -cE '^[12]	(escrow|raw)	lone-(read|write)	latency	4096	[0-9]+\.[0-9]{3}$' "$dir/lone")" = 8 ]
}
there_and_back() {
	ESCROW_TEST_RAILS=softverbs0:1:127.77.0.1 soft "$top_builddir/tests/bench/pong" 64 50 >"$dir/pong"
	cat "$dir/pong"
	grep -Eq '^64 50 [0-9]+\.[0-9]{3}$' "$dir/pong"
}
none=
[ -z "${SANITIZERS:-}" ] || none='a sanitizer must be the first library of a program'
for op in write read; do
	if [ -n "$none" ]; then skip "libfabric: $op" "$none"
	elif [ ! -x "$top_builddir/tests/bench/fabric" ]; then skip "libfabric: $op" 'built without libfabric'
	else ok "libfabric: $op" moved $op; fi
done
if [ -n "$none" ]; then skip 'grants beside bare pairs' "$none"
elif [ ! -x "$top_builddir/tests/bench/grant" ]; then skip 'grants beside bare pairs' 'built without the RDMA backend, or Check'
else ok 'grants beside bare pairs' pairs; fi
if [ -n "$none" ]; then skip 'there and back' "$none"
elif [ ! -x "$top_builddir/tests/bench/pong" ]; then skip 'there and back' 'built without the RDMA backend, or Check'
else
	ok 'there and back' there_and_back
	ok 'one op after the other, beside bare ones' alone
fi
ok "an unknown option" refused "--fast: not an option" --fast
ok "no round" refused "-r 0: 1 to 100 is allowed" -r 0
ok "a number that is none" refused "-r x: 1 to 100 is allowed" -r x
echo "1..$n"
