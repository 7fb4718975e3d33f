#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The escrow command on the mock: the sub-commands do what escrow(1) says. Prints TAP.
set -u
escrow=$top_builddir/tools/escrow
mock=$top_builddir/backends/.libs/mock.so
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
export XDG_RUNTIME_DIR=$dir
# shellcheck source=tests/lib/ports.sh
. "$top_srcdir/tests/lib/ports.sh"
# shellcheck source=tests/lib/say.sh
. "$top_srcdir/tests/lib/say.sh"
n=0

listed() { "$escrow" list | grep -q "^mock .*mock\.so$"; }

demo() { timeout 600 "$escrow" demo -b "$mock" "$@"; }

# trouble COMMAND...: it ends with 2, says why on standard error, and prints no result.
trouble() {
	local rc=0
	"$@" >"$dir/result" || rc=$?
	[ $rc = 2 ] && [ ! -s "$dir/result" ] || { cat "$dir/result"; echo "exit status $rc"; return 1; }
}

# one_of TEXT COMMAND...: it says this in one line.
one_of() {
	local text=$1
	shift
	"$@" >"$dir/said" 2>&1
	cat "$dir/said"
	[ "$(grep -cF -- "$text" "$dir/said")" = 1 ]
}

# lacks_run COMMAND...: it ends with 2, and no case was run.
lacks_run() {
	trouble "$@" 2>"$dir/why"
	local rc=$?
	cat "$dir/why"
	return $rc
}

# Two ends on "two machines" of which one means to move less.
sizes_differ() {
	local port source rc=0
	free_port || return
	demo --listen "127.0.0.1:$port" --parents 3 --bytes 4096 >"$dir/source" 2>&1 &
	source=$!
	demo --connect "127.0.0.1:$port" --parents 2 --bytes 4096 >"$dir/requester" 2>&1 || rc=$?
	wait $source
	cat "$dir/source" "$dir/requester"
	[ $rc = 1 ] && grep -q "the source lends 12288 bytes, and --parents x --bytes are 8192 here" "$dir/requester" &&
		! grep -q WRONG "$dir/requester"
}

# While a long demo runs, its ledger can be read; then the demo ends well.
ledger_of_running_demo() {
	local pid rc
	"$escrow" demo -b "$mock" --rounds 1000000 --parents 1 --bytes 4096 >"$dir/demo.out" 2>&1 &
	pid=$!
	until [ -S "$dir/escrow/$pid" ]; do kill -0 $pid || return 1; done
	until "$escrow" ledger "$pid" >"$dir/text" && grep -q "^engine requester on mock" "$dir/text"; do
		kill -0 $pid || return 1
	done
	"$escrow" ledger --json >"$dir/json"
	rc=$?
	kill $pid
	wait $pid
	[ $rc = 0 ] && grep -q '"engine" : "requester"' "$dir/json" && grep -q "engine .* live" "$dir/text" &&
		grep -q "^process $pid$" "$dir/text"
}

# Two processes serve a ledger: which one is meant is for who asks to say.
ledger_of_two() { # OPTION...
	local pids=() pid rc=0
	for _ in 1 2; do
		"$escrow" demo -b "$mock" --rounds 1000000 --parents 1 --bytes 4096 >"$dir/demo.out" 2>&1 &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do
		until "$escrow" ledger "$pid" >"$dir/text" && [ -s "$dir/text" ]; do kill -0 "$pid" || return 1; done
	done
	"$escrow" ledger "$@" >"$dir/text" 2>"$dir/why" || rc=$?
	kill "${pids[@]}"
	wait "${pids[@]}"
	cat "$dir/why"
	[ $rc = 2 ] && [ ! -s "$dir/text" ] && grep -q "one PID of: ${pids[0]} ${pids[1]}\|one PID of: ${pids[1]} ${pids[0]}" "$dir/why"
}

# killed source|requester: that end is killed while bytes move; the other says so and gives all back.
killed() {
	local pid cat rc
	rm -f "$dir/fifo"
	mkfifo "$dir/fifo"
	timeout 600 cat "$dir/fifo" >"$dir/killed" &
	cat=$!
	"$escrow" demo -b "$mock" --rounds 1000000 --parents 1 --bytes 4096 >"$dir/fifo" 2>&1 &
	pid=$!
	until [ -S "$dir/escrow/$pid" ]; do kill -0 $pid || return 1; done
	# Both engines are open, and the one has what the other lends.
	until "$escrow" ledger "$pid" | grep -q "^engine requester on mock.* 1 remotes"; do kill -0 $pid || return 1; done
	if [ "$1" = source ]; then kill -9 "$(pgrep -P $pid)"; else kill -9 $pid; fi
	wait $pid
	wait $cat # the end of the pipe: both processes are gone
	rc=$?
	cat "$dir/killed"
	[ $rc = 0 ] && grep -q "closed, and every charge is back" "$dir/killed" &&
		grep -q "lost\|gone\|went away\|E_PEER_LOST" "$dir/killed"
}

ok "list shows the mock" listed
ok "list --json" says '"loadable" : true' "$escrow" list --json
ok "info tells the settings" says "num_lanes=1" "$escrow" info mock
ok "info --json" says '"revision" : 1' "$escrow" info --json mock
ok "info of a backend that lists no rails does not speak of them" lacks '"rails' "$escrow" info --json "$mock"
ok "info of a backend that dies when it is asked says so" says "probe: crashed in rails: Killed" \
	"$escrow" info "$TEST_MODULE_PATH/bad-asked.so"
ok "... after what it knows" says "colour=grey" "$escrow" info "$TEST_MODULE_PATH/bad-asked.so"
ok "... and answers 1" status 1 "$escrow" info "$TEST_MODULE_PATH/bad-asked.so"
ok "info of no backend says what it looked for" says 'no backend "nonsense"' "$escrow" info nonsense
ok "... and could not do its work" status 2 "$escrow" info nonsense
printf 'not an object' >"$dir/bad.so"
ok "info of a setting that is none" says "info: --set foo: not KEY=VALUE" "$escrow" info -s foo mock
ok "info --memory of an unknown setting says what lists them" says "\`escrow info mock\` lists the keys" \
	"$escrow" info --memory -s xyzzy=1 mock
ok "list where there is no backend: 77" status 77 env "ESCROW_BACKEND_PATH=$dir/none" "$escrow" list
ok "info of no object says why" says "not an ELF file" "$escrow" info "$dir/bad.so"
ok "demo: eight parents of 5 MiB each way" says "both engines closed, and every charge is back" demo
ok "demo: READ only, several lanes, events" says "bytes and guards: right" demo --op read --lanes 4 --events
ok "demo: one byte" says "bytes and guards: right" demo --bytes 1 --parents 1
ok "demo: a size with a unit" says "1 parent of 65536 bytes" demo --parents 1 --bytes 64K
ok "demo: a size beyond what is allowed" says "--bytes 2G: 1 to 1073741824 is allowed" demo --bytes 2G
ok "demo: a size with a unit that is none" says "--bytes 4X: 1 to 1073741824 is allowed" demo --bytes 4X
ok "demo --json" says '"closed_clean" : true' demo --json --op write --bytes 100000 --parents 3
ok "demo: an address that is none is named, and it ends" says "HOST:PORT is meant" demo --connect nonsense
ok "demo: a value out of range is named" says "--parents 0: 1 to 1000 is allowed" demo --parents 0
ok "demo: an unknown setting names the nearest key" says "num_lanes" demo -s num_lane=2
ok "demo: a setting like none points to the list" says "options list the keys" demo -s xyzzy=2
ok "... and so does the tool" says "\`escrow info $mock\` lists the keys" demo -s xyzzy=2
ok "... once, not by each end" one_of "unknown key" demo -s xyzzy=2
ok "demo: a setting that is none" says "demo: --set foo: not KEY=VALUE" demo -s foo
ok "swap: a setting that is none" says "swap: --set foo: not KEY=VALUE" "$escrow" swap -s foo
ok "swap: an unknown setting says what lists them" says "\`escrow info mock\` lists the keys" "$escrow" swap -s xyzzy=2
ok "supervise: a file without a name" says "supervise: --file '': FILE is meant" "$escrow" supervise --file '' -- true
ok "conform: no jobs" says "--jobs 0: 1 to 1024 is allowed" "$escrow" conform -j 0 mock
ok "conform: a setting is not taken where only the file is looked at" \
	status 2 "$escrow" conform -q -p static -o xyzzy=1 mock
ok "... but one that there is" status 0 "$escrow" conform -q -p static -o num_lanes=2 mock
for report in json junit; do
	ok "conform: --$report that cannot be written is refused" \
		says "conform: --$report $dir/none/x: No such file or directory" "$escrow" conform "--$report" "$dir/none/x" mock
	ok "... before anything is run" lacks_run "$escrow" conform "--$report" "$dir" mock
done
ok "demo: a setting that is refused is trouble, without a result" trouble demo -s num_lane=2
ok "demo: no such backend is trouble, without a result" trouble "$escrow" demo -b nosuch
ok "demo: ends that differ in size say so" sizes_differ
ok "swap: no such backend is trouble, without a result" trouble "$escrow" swap "$mock" nosuch
ok "swap: there and back, nothing lost" says "2 swaps" "$escrow" swap "$mock"
ok "swap: one that is taken back loses nothing" says " 0 lost, 0 wrong: FAILED" \
	"$escrow" swap "$mock" "$TEST_MODULE_PATH/bad-open.so"
ok "... and answers 1" status 1 "$escrow" swap "$mock" "$TEST_MODULE_PATH/bad-open.so"
ok "swap --dry-run takes everything back" says "dry run: 0 swaps" "$escrow" swap --dry-run -n 1 "$mock"
ok "swap --json: twenty swaps" says '"committed" : 20' "$escrow" swap --json -n 20 "$mock"
ok "swap: a value out of range is named" says "--times 0: 1 to 1000000 is allowed" "$escrow" swap -n 0
ok "an unknown option points to --help" says "escrow list --help" "$escrow" list --frobnicate
ok "ledger: no process id" says '"12x" is not a process id' "$escrow" ledger 12x
ok "ledger of a process that serves none" says "process 1 serves no ledger" "$escrow" ledger 1
# What whoever starts the tool does to it
unwritten() { # COMMAND...: trouble, and it says what cannot be written
	local rc=0
	"$@" >/dev/full 2>"$dir/why" || rc=$?
	cat "$dir/why"
	[ $rc = 2 ] && grep -q "standard output cannot be written: No space left" "$dir/why"
}
closed() { # COMMAND...: without any standard descriptor, trouble, and nothing is written elsewhere
	local rc=0
	(exec "$@" <&- >&- 2>&-) || rc=$?
	[ $rc = 2 ] || { echo "exit status $rc"; return 1; }
}
into_a_device() { # a report goes into what the name is, not over it
	ln -s /dev/full "$dir/full"
	status 2 "$escrow" conform -q -c ESC-LIFE-001 --json "$dir/full" mock &&
		status 2 "$escrow" conform -q -c ESC-LIFE-001 --junit "$dir/full" mock &&
		[ -L "$dir/full" ] && [ -c /dev/full ] || return 1
	"$escrow" conform -q -c ESC-LIFE-001 --json /dev/stdout mock | grep -q '"statement"'
}
utf8() { "$@" | iconv -f UTF-8 -t UTF-8 >/dev/null; }
odd=$dir/$'o\xcc dd\xff'
mkdir "$odd"
cp "$mock" "$odd/mock.so"
for sub in "list --json" "info mock" "conform -q -c ESC-LIFE-001 mock" "conform --list" "swap --json" \
	"demo -b mock --parents 1 --bytes 1 --json" "list --help" --help --version; do
	# shellcheck disable=SC2086
	ok "$sub: a full disk is trouble" unwritten "$escrow" $sub
done
ok "list: closed descriptors are trouble" closed "$escrow" list
ok "demo: closed descriptors are trouble" closed "$escrow" demo -b mock --parents 1 --bytes 1
for sub in "info mock" "conform -q -c ESC-PROC-002 mock" "supervise -- true" "swap"; do
	# shellcheck disable=SC2086
	ok "$sub: whoever starts it ignores SIGCHLD" timeout 600 env --ignore-signal=CHLD "$escrow" $sub
done
ok "conform: --json and --junit into a device or a pipe" into_a_device
ok "conform: a setting without a value is named" says "--config nonsense: not KEY=VALUE" \
	"$escrow" conform -o nonsense -c ESC-LIFE-001 mock
ok "demo: a path in no locale's letters" status 0 demo -b "$odd/mock.so" --parents 1 --bytes 1
ok "info --json is UTF-8 whatever the path" utf8 "$escrow" info --json "$odd/mock.so"
ok "conform --json is UTF-8 whatever the path" \
	utf8 sh -c "\"\$1\" conform -q -c ESC-LIFE-001 --json /dev/fd/3 \"\$2\" 3>&1 >/dev/null" - "$escrow" "$odd/mock.so"
ok "an unknown sub-command is trouble" status 2 "$escrow" frobnicate
ok "no process serves a ledger: 77" status 77 "$escrow" ledger
ok "the ledger of a running demo, text and JSON" ledger_of_running_demo
ok "the ledger of two processes: trouble, and which there are" ledger_of_two
ok "... also as JSON" ledger_of_two --json
ok "demo: the source is killed" killed source
ok "demo: the requester is killed" killed requester
name="demo: without a device, the RDMA backend on softverbs"
if [ -n "${SANITIZERS:-}" ]; then
	skip "$name" "a sanitizer must be the first library of a program"
elif [ ! -f "$top_builddir/backends/.libs/rdma.so" ]; then
	skip "$name" "built without the RDMA backend"
elif [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
	skip "$name" "this machine has a device"
else
	ok "$name" says "the RDMA backend runs on softverbs" timeout 600 "$escrow" demo --rounds 2
fi

# The rails that there are, before an engine is open
rdma=$top_builddir/backends/.libs/rdma.so
on() { "$top_srcdir/tests/softverbs/run" --rails 2 "$@"; } # [OPTION...] -- COMMAND...
one_line() { # PATTERN...: the lines that fit all of them are one
	local lines pattern
	lines=$(cat)
	for pattern in "$@"; do lines=$(grep -E -- "$pattern" <<<"$lines"); done
	[ "$(grep -c . <<<"$lines")" = 1 ] || { echo "not one line: $*: $lines"; return 1; }
}
rail_listed() {
	on -- "$escrow" info "$rdma" >"$dir/rails" && cat "$dir/rails" &&
		one_line 'rail\.0 +softverbs0/1 +softverbs +up +RoCEv2 +1 +::ffff:127\.77\.0\.1 +- +127\.77\.0\.1$' <"$dir/rails" &&
		one_line 'rail\.1 +softverbs1/1 .* 127\.77\.1\.1$' <"$dir/rails" &&
		one_line 'unused +softverbs0/1 .* fe80:' <"$dir/rails" &&
		[ "$(grep -c 'of this port another address is used' "$dir/rails")" = 6 ]
}
rail_in_json() {
	on -- "$escrow" info --json -s max_rails=1 "$rdma" >"$dir/rails" && cat "$dir/rails" &&
		jq -e '.rails | length == 8 and
			(map(select(.use == "used")) | length == 1 and (.[0] | .device == "softverbs0" and .port == 1 and
				.number == 0 and .state == "up" and .type == "RoCEv2" and .gid_index == 1 and
				.gid == "::ffff:127.77.0.1" and .address == "127.77.0.1" and .numa_node == null and
				.driver == "softverbs" and .why == null and .mtu == 4096)) and
			(map(select(.address == "127.77.1.1")) | length == 1 and
				(.[0] | .use == "unused" and .number == null and .why == "max_rails allows 1"))' "$dir/rails"
}
rail_node() { # sysfs says where the device sits
	mkdir -p "$dir/sys/class/infiniband/softverbs1/device"
	echo 3 >"$dir/sys/class/infiniband/softverbs1/device/numa_node"
	on -- "$escrow" info --json -s "rdma.sysfs=$dir/sys" "$rdma" >"$dir/rails" && cat "$dir/rails" &&
		jq -e '[.rails[] | select(.use == "used") | .numa_node] == [null, 3]' "$dir/rails"
}
rails_skip=
[ -z "${SANITIZERS:-}" ] || rails_skip="a sanitizer must be the first library of a program"
[ -f "$rdma" ] || rails_skip="built without the RDMA backend"
rail() { # NAME COMMAND...
	if [ -n "$rails_skip" ]; then skip "$1" "$rails_skip"; else ok "$@"; fi
}
rail "info rdma: the rails that an engine would have, and what is passed over" rail_listed
rail "info rdma: a device that open refuses" says "refused  softverbs0/1" on --personality siw -- "$escrow" info "$rdma"
rail "... and why" says "iWARP gives no end-to-end acknowledgement" on --personality siw -- "$escrow" info "$rdma"
rail "info rdma: what is not named" says "rdma.rails does not name it" on -- "$escrow" info -s rdma.rails=softverbs1 "$rdma"
rail "info rdma: a setting that open would refuse is named" says 'the nearest is "rdma.rails"' \
	on -- "$escrow" info -s rdma.rale=x "$rdma"
rail "... and answers 1" status 1 on -- "$escrow" info -s rdma.rale=x "$rdma"
rail "demo: where a grant ends in quarantine it fails, and ends" status 1 \
	on --personality irdma -- timeout 300 "$escrow" demo -b "$rdma" --bytes 1000
rail "swap: between backends that do not understand each other" says " 0 lost, 0 wrong: nothing lost" \
	on -- timeout 600 "$escrow" swap -n 3 "$mock" "$rdma"
command -v jq >/dev/null || rails_skip=${rails_skip:-no jq here}
rail "info rdma --json" rail_in_json
rail "info rdma: the NUMA node" rail_node
echo "1..$n"
