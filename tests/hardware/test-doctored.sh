#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The controller must not be fooled: what the sides of two good runs wrote down is altered, one thing at a time, and each
# must be rejected for just that; and a profile that is not right is refused before anything starts. Prints TAP.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export top_builddir=${top_builddir:-$here/../../build}
if [ -n "${SANITIZERS:-}" ]; then
	echo "1..0 # SKIP a sanitizer must be the first library of a program"
	exit 0
fi
if [ ! -f "$top_builddir/tests/gates/.libs/libobserver.so" ]; then
	echo "1..0 # SKIP built without the RDMA backend"
	exit 0
fi
command -v jq >/dev/null || { echo "1..0 # SKIP no jq here"; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
strong=destroy_qp/write/requester/rail0/events/lanes1/strong
weak=destroy_qp/write/requester/rail0/events/lanes1/weak
n=0

# line GOOD NAME: one line; what was said if it is not.
line() {
	n=$((n + 1))
	if [ "$1" = yes ]; then echo "ok $n - $2"; else
		sed 's/^/# /' "$dir/out"
		echo "not ok $n - $2"
	fi
}

# judged CASE OUT: 0 if the controller finds the run right.
judged() { "$here/run" --judge --out "$2" --case "$1" >"$dir/out" 2>&1; }

# rejects NAME CASE FILE FILTER TEXT: with FILE altered by the filter the run is rejected, and TEXT is the reason.
rejects() {
	local name=$1 case=$2 file=$3 filter=$4 text=$5 good=no
	local folder=$dir/doctored/${case//\//-}
	rm -rf "$dir/doctored"
	cp -r "$dir/runs" "$dir/doctored"
	jq "$filter" "$dir/runs/${case//\//-}/$file" >"$folder/$file"
	if cmp -s <(jq -S . "$folder/$file") <(jq -S . "$dir/runs/${case//\//-}/$file"); then
		echo "nothing was altered" >"$dir/out"
	elif ! judged "$case" "$dir/doctored" && grep -q -- "$text" "$dir/out"; then
		good=yes
	fi
	line $good "rejected: $name"
}

# swapped CASE: the ends changed places.
swapped() {
	local folder=$dir/doctored/${1//\//-}
	rm -rf "$dir/doctored"
	cp -r "$dir/runs" "$dir/doctored"
	mv "$folder/source.json" "$folder/x"
	mv "$folder/requester.json" "$folder/source.json"
	mv "$folder/x" "$folder/requester.json"
	judged "$1" "$dir/doctored" && return 1
	grep -q "the end that was to fail wrote no" "$dir/out"
}

"$here/run" --out "$dir/runs" --case 'destroy_qp/write/requester/rail0/events/lanes1/*' >"$dir/out" 2>&1 && good=yes || good=no
line $good 'two runs that are right'
for case in $strong $weak; do
	judged $case "$dir/runs" && good=yes || good=no
	line $good "judged again from what they wrote: $case"
done

# The facts of an end are doctored in every run of the gates (tests/gates/doctor.c); here one, through the files.
rejects 'early release: the memory was given back' $weak requester.json '.freed = 1' 'freed is 1, not 0'
line "$(swapped $strong && echo yes || echo no)" 'rejected: the ends changed places'

# What the sides say of the processes.
rejects 'an unreaped child' $strong side-requester.json '.reaped = 0' 'was started, 0 was reaped'
rejects 'another child was reaped' $strong side-source.json '.reaped += 1' 'was reaped'
rejects 'a child that ended by a signal' $strong side-source.json '.wait_status = 9' 'wait status 0x9'
rejects 'a process was left behind' $strong side-fresh-source.json '.left_behind = true' 'left a process behind'
rejects 'a lock was released before the child was reaped' $strong side-requester.json '.locked_after = false' 'was not locked'
rejects 'another program' $strong side-fresh-requester.json '.frozen = "0"' 'it ran another program'
rejects 'the kernel has more than before' $strong kernel.json '.source_after = "[{\"qp\":2}]"' 'the kernel lists'

# What the controller refuses to start.
refuses() {
	local name=$1 text=$2 rc=0
	shift 2
	"$@" >"$dir/out" 2>&1 || rc=$?
	[ $rc = 2 ] && grep -q -- "$text" "$dir/out" && good=yes || good=no
	line $good "refused: $name"
}
top=$(cd "$here/../.." && pwd)
refuses 'output inside the checkout' 'outside of the checkout' "$here/run" --out "$top/build/out"
refuses 'no output folder' '--out DIR is needed' "$here/run"
refuses 'no such profile' 'No such file' "$here/run" --profile "$dir/none" --out "$dir/o"
gates=$here/../gates/run
refuses 'the gates on hardware without a profile' 'needs --profile FILE' "$gates" --on hardware --case $strong
refuses 'the gates on a double by a profile' 'is for --on hardware' "$gates" --profile "$dir/runs/profile"
refuses 'the gates nowhere' 'softverbs, softroce or hardware' "$gates" --on paper
profile() { sed "$1" "$dir/runs/profile" >"$dir/profile"; }
profile 's/^identities=softverbs0= softverbs1=/identities=softverbs0=/'
refuses 'a profile with one rail' 'two are needed' "$here/run" --profile "$dir/profile" --out "$dir/o"
profile 's/^channel=/chanel=/'
refuses 'a misspelt key' 'chanel: no such key' "$here/run" --profile "$dir/profile" --out "$dir/o"
profile 's/^env=/env=A=$(reboot) /'
refuses 'a word that a shell would read' 'letters, digits' "$here/run" --profile "$dir/profile" --out "$dir/o"
profile 's/softverbs0= /mlx5_77=0000:1111:2222:3333 /'
refuses 'a device that is not the pinned one' 'no such device here' "$here/run" --profile "$dir/profile" --out "$dir/o"
# By the same words as everywhere: --on, --case, --json.
"$gates" --on hardware --profile "$dir/runs/profile" --case $strong --json "$dir/report.json" --out "$dir/on" >"$dir/out" 2>&1 &&
	jq -e --arg case $strong '[.. | strings | select(. == $case)] | length > 0' "$dir/report.json" >/dev/null &&
	grep -q "^ok .*$strong" "$dir/out" && good=yes || good=no
line $good 'the gates by their own command, on the hosts of a profile'
locks=$(sed -n 's/^locks=//p' "$dir/runs/profile" | head -1)
(flock -n 9 && "$here/run" --profile "$dir/runs/profile" --out "$dir/o" >"$dir/out" 2>&1; echo $? >"$dir/rc") 9>"$locks/escrow-rnic-softverbs1.lock"
[ "$(cat "$dir/rc")" = 2 ] && grep -q 'held by another run' "$dir/out" && good=yes || good=no
line $good 'refused: an RNIC that another run has'
cp "$dir/runs/profile" "$dir/profile"
echo >>"$dir/runs/frozen/libescrow.so.0"
"$here/run" --profile "$dir/profile" --out "$dir/o" --case $strong >"$dir/out" 2>&1 && good=no || good=yes
grep -q 'it was frozen with' "$dir/out" || good=no
line $good 'refused: a program that is not the frozen one'
echo "1..$n"
