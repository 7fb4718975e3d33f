#!/bin/bash
# The sums of ./dev test: what passes, fails, skips, breaks or stays silent is counted as such, and the
# last line says so.
set -u
top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0

# What ./dev lends to stages.sh.
top=$top_srcdir build=$tmp/build
say() { printf '%s\n' "$*" >&2; }
die() { say "dev: $*"; exit 1; }
. "$top_srcdir/tests/lib/stages.sh"

stage_table=(
	"good     TAP of every kind, all well"
	"bad      one failure among others"
	"broken   passes, then ends with a status"
	"silent   says nothing"
	"trs      automake's results"
	"nested   a failing command in the middle of a function"
)
stage_good() { printf 'ok 1 - a\nok 2 - b # SKIP no device\nnot ok 3 - c # TODO later\n1..3\n' >"$stage_dir/a.tap"; }
stage_bad() { printf '1..2\nok 1\nnot ok 2 - x\nBail out! y\n' >"$stage_dir/a.tap"; return 1; }
stage_broken() { echo 'ok 1' >"$stage_dir/a.tap"; echo 'the reason'; return 3; }
stage_silent() { :; }
stage_trs() {
	mkdir -p "$tmp/dir/sub"
	printf ':test-result: FAIL old\n' >"$tmp/dir/old.trs"
	touch -d '2001-01-01' "$tmp/dir/old.trs"
	results_in "$tmp/dir"
	results_in "$tmp/dir"
	printf ':test-result: PASS a\n:test-result: SKIP b\n:test-result: ERROR c\n' >"$tmp/dir/sub/new.trs"
	echo 'what it said' >"$tmp/dir/sub/new.log"
}
stage_nested() { echo 'ok 1' >"$stage_dir/a.tap"; false; echo 'ok 2' >>"$stage_dir/a.tap"; }

# expect NAME STATUS LAST-LINE STAGE...
expect() {
	local name=$1 status=$2 last=$3 rc
	shift 3
	n=$((n + 1))
	# Not behind "||", where bash would ignore set -e all the way down.
	(stages_main "$@") >"$tmp/out" 2>"$tmp/err"
	rc=$?
	if [ $rc = "$status" ] && [ "$(tail -n 1 "$tmp/out")" = "$last" ]; then
		echo "ok $n - $name"
	else
		echo "# status $rc, last line: $(tail -n 1 "$tmp/out")"
		echo "not ok $n - $name"
	fi
}

said() {
	n=$((n + 1))
	if grep -q "$2" "$tmp/err"; then echo "ok $n - $1"; else echo "not ok $n - $1"; fi
}

expect 'TAP is summed' 0 '1 passed, 0 failed, 2 skipped' good
expect 'failures and bail-outs are failures' 1 '1 passed, 2 failed, 0 skipped' bad
expect 'a stage that breaks is a failure' 1 '1 passed, 1 failed, 0 skipped' broken
said 'and the end of its log is shown' 'the reason'
expect 'a stage without results is a failure' 1 '0 passed, 1 failed, 0 skipped' silent
expect 'results of automake, once, and not those of an earlier run' 1 '1 passed, 1 failed, 1 skipped' trs
said 'and what the failed test said is shown' 'what it said'
expect 'a command that fails ends its stage' 1 '1 passed, 1 failed, 0 skipped' nested
expect 'stages add up' 1 '3 passed, 3 failed, 2 skipped' good bad broken
expect 'all, when none is named' 1 '5 passed, 6 failed, 3 skipped'
last_said() {
	n=$((n + 1))
	if sed -n '/^== failed in/,$p' "$tmp/err" | grep -q "$2"; then echo "ok $n - $1"; else echo "not ok $n - $1"; fi
}
last_said 'what failed is said again at the end' '^not ok 2 - x'
expect 'a later run' 0 '1 passed, 0 failed, 2 skipped' good
n=$((n + 1))
if grep -q '^== failed' "$tmp/err"; then echo "not ok $n - says nothing of an earlier one"; else echo "ok $n - says nothing of an earlier one"; fi
expect 'an unknown stage is refused' 1 '' nosuch
echo "1..$n"
