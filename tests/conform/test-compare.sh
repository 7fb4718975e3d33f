#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# tests/conform/compare finds what differs between two runs of the suite, and what is stale in its list. By runs that are
# made up.
set -u
compare=$top_srcdir/tests/conform/compare
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0

# run BACKEND CAPS CASE=VERDICT...: what escrow conform --tap prints, see tools/conform-report.c
run() {
	local backend=$1 caps=$2 i=0 entry case verdict
	shift 2
	echo "1..$#"
	printf '# suite: escrow\n# backend: %s\n# caps at best: ALL\n# caps: %s\n' "$backend" "$caps"
	for entry; do
		case=${entry%=*} verdict=${entry#*=} i=$((i + 1))
		case $verdict in
		PASS) echo "ok $i - $case does it" ;;
		SKIP) echo "ok $i - $case does it # SKIP not here" ;;
		WARN | WAIVED) printf 'ok %d - %s does it\n# %s CL-1: why\n#   more\n' "$i" "$case" "$verdict" ;;
		*) printf 'not ok %d - %s does it\n# %s CL-1: why\n#   more\n' "$i" "$case" "$verdict" ;;
		esac
	done
	echo "# $backend conforms, or not"
}
mock() { run mock "$@" >"$dir/mock"; }
rdma() { run rdma "$@" >"$dir/rdma"; }
# allow LINE...: the list; a blank in a line is a tab, _ a blank
allow() { printf '%s\n' '# a comment' '' "$@" | sed '3,$ { s/ /\t/g; s/_/ /g }' >"$dir/list"; }

# says NAME RESULTS TEXT [WHERE]: the three lines of compare are ok (y) or not (n), and TEXT is among them
says() {
	local name=$1 results=$2 text=$3 got
	"$compare" "${4:-softverbs}" "$dir/list" "$dir/mock" "$dir/rdma" >"$dir/out" 2>&1
	got=$(sed -nE 's/^ok .*/y/p;s/^not ok .*/n/p' "$dir/out" | tr -d '\n')
	n=$((n + 1))
	if [ "$got" = "$results" ] && grep -qF -- "$text" "$dir/out"; then
		echo "ok $n - $name"
	else
		sed 's/^/# /' "$dir/out"
		echo "not ok $n - $name"
	fi
}

both() { mock A,B "$@"; rdma A,B "$@"; }

allow
both ESC-A-001=PASS ESC-A-002=SKIP ESC-A-003=FAIL ESC-A-004=WARN
says "two runs that are alike" yyy 1..3

mock A,B ESC-A-001=PASS ESC-A-002=PASS
for verdict in FAIL CRASH TIMEOUT SKIP WARN WAIVED BROKEN; do
	rdma A,B ESC-A-001=PASS ESC-A-002=$verdict
	says "one that $verdict is found" yny "ESC-A-002: PASS on the mock, $verdict on rdma"
done
rdma A,B ESC-A-002=PASS
says "a case that is missing is found" yny "ESC-A-001: PASS on the mock, MISSING on rdma"
rdma A,B ESC-A-001=PASS ESC-A-002=PASS ESC-A-003=PASS
says "one more is found" yny "ESC-A-003: MISSING on the mock, PASS on rdma"
rdma B,C ESC-A-001=PASS ESC-A-002=PASS
says "a capability more and one less are found" yny "caps: A on the mock, C on rdma"

allow "any caps A C a_reason"
says "capabilities that are allowed" yyy 1..3
rdma B,C,D ESC-A-001=PASS ESC-A-002=PASS
says "others are found all the same" ynn "caps: A on the mock, C,D on rdma"

rdma A,B ESC-A-001=PASS ESC-A-002=SKIP
allow "softverbs ESC-A-002 PASS SKIP a_reason"
says "a difference that is allowed" yyy 1..3
says "it is allowed where it is said to be" yny "ESC-A-002" guest
allow "any ESC-A-002 PASS SKIP a_reason"
says "or anywhere" yyy 1..3 guest
rdma A,B ESC-A-001=PASS ESC-A-002=FAIL
says "another verdict than the one that is allowed" ynn "ESC-A-002: PASS on the mock, FAIL on rdma"
both ESC-A-001=PASS ESC-A-002=PASS
says "an entry that tells of nothing is stale" yyn "ESC-A-002: no such difference"
allow "guest ESC-A-002 PASS SKIP a_reason"
says "not where it says nothing of" yyy 1..3
says "but there" yyn "ESC-A-002: no such difference" guest
allow "guest ESC-Z-001 PASS SKIP a_reason"
says "a case that is not in the suite" yyn "ESC-Z-001: not in the suite"
says "may be in what did not run there" yyy 1..3 guest

for line in "any ESC-A-002 PASS SKIP" "any ESC-A-002 PASS SKIP _" "some ESC-A-002 PASS SKIP a_reason" \
	"any ESC-A-002 PASS WELL a_reason"; do
	allow "$line"
	says "no entry: $line" nyy "not an entry"
done
allow "any ESC-A-002 PASS SKIP a_reason" "any ESC-A-002 PASS SKIP a_reason"
rdma A,B ESC-A-001=PASS ESC-A-002=SKIP
says "the same twice" nyy "a second entry of ESC-A-002"

allow
both ESC-A-001=PASS ESC-A-002=PASS
sed -i '/ESC-A-002/d' "$dir/mock" "$dir/rdma"
says "runs that broke off are no runs" nyy "1 cases of 2"
both ESC-A-001=PASS
cp "$dir/mock" "$dir/rdma"
says "the mock is not the RDMA backend" nyy "of mock instead of rdma"
: >"$dir/rdma"
says "an empty run" nny "no plan"
echo "1..$n"
