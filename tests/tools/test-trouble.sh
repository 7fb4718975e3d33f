#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What the escrow command says where something is missing or refused: once, with the value and what is allowed. TAP.
set -u
escrow=$top_builddir/tools/escrow
mock=$top_builddir/backends/.libs/mock.so
rdma=$top_builddir/backends/.libs/rdma.so
export ESCROW_CONFORM_CHILD=$top_builddir/tests/conform/escrow-conform-child
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
export XDG_RUNTIME_DIR=$dir
# shellcheck source=tests/lib/ports.sh
. "$top_srcdir/tests/lib/ports.sh"
# shellcheck source=tests/lib/say.sh
. "$top_srcdir/tests/lib/say.sh"
n=0

# once TEXT STATUS COMMAND...: it ends with STATUS, and one line of what it says has TEXT.
once() {
	local text=$1 want=$2 rc=0
	shift 2
	"$@" >"$dir/once" 2>&1 || rc=$?
	cat "$dir/once"
	[ $rc = "$want" ] && [ "$(grep -cF -- "$text" "$dir/once")" = 1 ]
}

lines() { [ "$(wc -l <"$2")" = "$1" ]; } # N FILE

# A backend that no case could be asked of. Address sanitizer would make an exit of its crash.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_segv=0
echo 'no object' >"$dir/text.so"
ok "conform of what is no object: one line" once "it cannot be loaded" 2 "$escrow" conform "$dir/text.so"
ok "... names it" says "$dir/text.so" "$escrow" conform "$dir/text.so"
ok "conform of what is no backend: one line" once "it has no symbol escrow_backend_entry_1" 2 \
	"$escrow" conform "$(ldd "$mock" | awk '/libm\.so|libc\.so/ { print $3; exit }')"
ok "conform of one that does not open: one line" once 'open gives E_INVALID: unknown key "num_lane"' 2 "$escrow" conform -o num_lane=2 "$mock"
for bad in crash exit hang; do # hang: in open
	case $bad in
	crash) how="when it is loaded: killed by signal 11" ;;
	exit) how="when it is loaded: ended without a verdict, exit status 0" ;;
	hang) how="when an engine is opened: no verdict within 3000 ms" ;;
	esac
	ok "conform of one that dies or hangs when it begins, $bad: one line" \
		once "bad-$bad.so: $how" 2 "$escrow" conform -t 3000 "$TEST_MODULE_PATH/bad-$bad.so"
	ok "... and no case was run" lines 1 "$dir/once"
done
bails() { # standard output is TAP that ends there
	"$escrow" conform --tap -o num_lane=2 "$mock" >"$dir/tap" 2>/dev/null
	[ $? = 2 ] && [ "$(wc -l <"$dir/tap")" = 1 ] && grep -q "^Bail out! .*mock.so: open gives" "$dir/tap"
}
ok "... as TAP it bails out" bails
ok "conform: the static profile looks at the file all the same" status 1 "$escrow" conform -p static "$dir/text.so"

# A backend that ends the process that loads it
for sub in "demo -b" "bench -b" swap; do
	for bad in exit crash; do
		# shellcheck disable=SC2086
		ok "${sub%% *}: a constructor that ends in $bad is told" says "$TEST_MODULE_PATH/bad-$bad.so" \
			"$escrow" $sub "$TEST_MODULE_PATH/bad-$bad.so"
		# shellcheck disable=SC2086
		ok "... and is trouble" status 2 "$escrow" $sub "$TEST_MODULE_PATH/bad-$bad.so"
	done
done

for sub in demo bench; do
	ok "$sub: one that ends the process in open, as if all were well" once "requester: $TEST_MODULE_PATH/bad-leave.so: E_INVALID: probe: \
ended without a verdict in open: it called exit(0)" 2 timeout 300 "$escrow" $sub -b "$TEST_MODULE_PATH/bad-leave.so"
done

# No device
hint="./dev softverbs -- "
no_device=
[ -z "$(ls /sys/class/infiniband 2>/dev/null)" ] || no_device="this machine has a device"
[ -f "$rdma" ] || no_device="built without the RDMA backend"
without() { # NAME COMMAND...
	if [ -n "$no_device" ]; then skip "$1" "$no_device"; else ok "$@"; fi
}
without "demo -b rdma without a device points to softverbs, once" once "$hint" 2 "$escrow" demo -b "$rdma"
without "bench -b rdma without a device points to softverbs, once" once "$hint" 2 "$escrow" bench -b "$rdma"
without "swap to rdma without a device points to softverbs" says "$hint" "$escrow" swap "$rdma"
without "conform rdma without a device points to softverbs, once" once "$hint" 2 "$escrow" conform "$rdma"
unhinted() { ! says "$hint" "$@" >"$dir/unhinted" || { cat "$dir/unhinted"; return 1; }; }
without "another refusal of rdma does not" unhinted "$escrow" demo -b "$rdma" -s rdma.rale=x
ok "one of another backend does not" unhinted "$escrow" demo -b "$TEST_MODULE_PATH/bad-open.so"

# No process for the question
name="info: no process to ask for the rails in"
if [ -n "${SANITIZERS:-}" ]; then
	skip "$name" "a sanitizer must be the first library of a program"
else
	ok "$name" once "escrow: no process to ask for its rails in: Resource temporarily unavailable" 2 \
		env LD_PRELOAD="$top_builddir/tests/tools/.libs/forkless.so" "$escrow" info --json "$mock"
fi

# Settings of a backend that lists no rails
ok "info: a setting that open would refuse is named" says 'num_lanes' "$escrow" info -s num_lane=2 "$mock"
ok "... and answers 1" status 1 "$escrow" info -s num_lane=2 "$mock"
ok "info: so is a value" status 1 "$escrow" info -s num_lanes=0x "$mock"
ok "info: a good setting is none" status 0 "$escrow" info -s num_lanes=2 "$mock"

# Descriptors
few() { # COMMAND...: with room for 6 more than the three that it has
	(ulimit -n 9 && exec "$@" 3>&- 4>&- 5>&- 6>&- 7>&- 8>&-)
}
for sub in "demo -b $mock" "bench -b $mock" "swap $mock"; do
	# shellcheck disable=SC2086
	ok "${sub%% *}: too few descriptors are trouble" once "and 16 are needed (ulimit -n)" 2 few "$escrow" $sub
done

# Memory: however little there is, it ends, with 2 if it has said why; 127: not even the program was loaded
little() {
	local kib rc
	for kib in 50000 55000 60000 65000 70000 80000 100000; do
		rc=0
		(ulimit -v $kib && exec timeout 300 "$escrow" swap "$mock") >"$dir/little" 2>&1 || rc=$?
		cat "$dir/little"
		echo "$kib KiB: $rc"
		case $rc in
		0 | 1 | 127) ;; # 1: a swap was taken back
		2) grep -q "^escrow: swap: " "$dir/little" || return 1 ;;
		*) return 1 ;;
		esac
	done
}
name="swap: a first peer that does not come up is told"
if [ -n "${SANITIZERS:-}" ]; then skip "$name" "a sanitizer needs more memory"; else ok "$name" little; fi

# Refusals of a transfer
limit() { "$escrow" demo -b "$mock" --parents 1 "$@"; }
ok "demo: an op that is too long is told with its limit" once \
	"E_LIMIT: an op of 100000 bytes; max_op_bytes is 4096" 1 limit --bytes 100000 -s max_op_bytes=4096

ok "demo: a quota that is used up is told with its limit" once "used up: ops, 1 of 1" 1 \
	"$escrow" demo -b "$mock" --parents 4 --bytes 100 -s quota.ops=1 -s mock.delay=20000

# Whom nobody listens to yet
asks_again() {
	local port requester rc
	free_port || return
	"$escrow" demo -b "$mock" --connect "127.0.0.1:$port" --parents 1 --bytes 1 >"$dir/requester" 2>&1 &
	requester=$!
	until grep -q "127.0.0.1:$port: Connection refused; it is asked again for up to 60 s" "$dir/requester"; do
		kill -0 $requester || { cat "$dir/requester"; return 1; }
	done
	"$escrow" demo -b "$mock" --listen "127.0.0.1:$port" --parents 1 --bytes 1 >"$dir/source" 2>&1
	wait $requester
	rc=$?
	cat "$dir/requester"
	[ $rc = 0 ] && [ "$(grep -c "asked again" "$dir/requester")" = 1 ]
}
ok "demo --connect says that it waits, once" asks_again

# Who is connected and is no escrow end. stranger PERL TEXT STATUS COMMAND...: the PERL has the connection in $s, and closes
# it at its end; the command listens, says TEXT, and ends with STATUS.
stranger() {
	local what=$1 text=$2 want=$3 port pid rc=0
	shift 3
	free_port || return
	timeout 300 "$@" --listen "127.0.0.1:$port" >"$dir/listener" 2>&1 &
	pid=$!
	perl -MIO::Socket::INET -e 'my ($port, $pid) = @ARGV; my $s;
		until ($s = IO::Socket::INET->new("127.0.0.1:$port")) { kill 0, $pid or die "it does not listen\n" }
		$s->autoflush; '"$what" "$port" "$pid" || return
	wait $pid || rc=$?
	cat "$dir/listener"
	[ $rc = "$want" ] && grep -qF -- "$text" "$dir/listener"
}
foreign="the other end sent what is no message of an escrow end"
http='print $s "GET / HTTP/1.0\r\n\r\n";'
zeros='print $s "\0" x 4096;'
waits='sysread $s, my $end, 1 for 1 .. 64;' # until it is closed over there
quits='$SIG{PIPE} = "IGNORE"; sysread $s, my $hello, 4096; print $s $hello, "unread" x 9;' # an end that dies
for sub in demo bench; do
	ok "$sub --listen: HTTP" stranger "$http" "$foreign" 1 "$escrow" $sub -b "$mock"
	ok "$sub --listen: zeros" stranger "$zeros" "$foreign" 1 "$escrow" $sub -b "$mock"
	ok "$sub --listen: HTTP that waits for its answer" stranger "$http $waits" "$foreign" 1 "$escrow" $sub -b "$mock"
	ok "$sub --listen: nobody says a word" stranger "$waits" "who is connected has said nothing for 1 s" 1 \
		env ESCROW_CONNECT_SECONDS=1 "$escrow" $sub -b "$mock"
	ok "$sub --listen: closed at once" stranger "" "the other end is gone" 1 "$escrow" $sub -b "$mock"
done
ok "demo --listen: an end that dies with something unread" stranger "$quits" "source: the other end is gone" 1 "$escrow" demo -b "$mock"
ok "bench --listen: an end that goes before it has asked for anything" stranger 'sysread $s, my $hello, 4096; print $s $hello;' \
	"bench: the other end is gone" 1 "$escrow" bench -b "$mock"
other_command() { # the two ends are of different sub-commands
	local port listener rc=0
	free_port || return
	"$escrow" bench -b "$mock" --listen "127.0.0.1:$port" >"$dir/listener" 2>&1 &
	listener=$!
	once "127.0.0.1:$port: the other end is no escrow demo" 1 "$escrow" demo -b "$mock" --connect "127.0.0.1:$port" || rc=1
	wait $listener
	[ $? = 1 ] && [ $rc = 0 ]
}
ok "demo --connect to a bench says so" other_command

# Ports
for sub in demo bench; do
	ok "$sub --listen: a port that is none" once "$sub: --listen :99999: port 99999: 0 to 65535 is allowed" 2 \
		timeout 60 "$escrow" $sub -b "$mock" --listen :99999
	ok "$sub --connect: a port that is none" once "$sub: --connect h:0: port 0: 1 to 65535 is allowed" 2 \
		timeout 60 "$escrow" $sub -b "$mock" --connect h:0
done
any_port() { # the one that is told is listened at
	local pid port=
	"$escrow" demo -b "$mock" --listen 127.0.0.1:0 --parents 1 --bytes 1 >"$dir/listener" 2>&1 &
	pid=$!
	until port=$(sed -n 's/^escrow: demo: 127.0.0.1:0: listens on port \([0-9]*\)$/\1/p' "$dir/listener") && [ -n "$port" ]; do
		kill -0 $pid || { cat "$dir/listener"; return 1; }
	done
	"$escrow" demo -b "$mock" --connect "127.0.0.1:$port" --parents 1 --bytes 1 && wait $pid
}
ok "demo --listen :0 tells the port" any_port
no_host() { # both ends on this machine, and no host named
	local pid port rc
	free_port || return
	"$escrow" demo -b "$mock" --listen ":$port" --parents 1 --bytes 1 &
	pid=$!
	ESCROW_CONNECT_SECONDS=20 "$escrow" demo -b "$mock" --connect ":$port" --parents 1 --bytes 1
	rc=$?
	[ $rc = 0 ] || kill $pid
	wait $pid && [ $rc = 0 ]
}
ok "demo --connect :PORT reaches --listen :PORT" no_host

# Numbers: what is allowed is told of each, whatever was given instead
numbers() { # RANGE COMMAND... --OPTION: behind it each of some words that are no such number
	local range=$1 option word
	shift
	option=${*: -1}
	"$1" "$2" --help | grep -qE -- "$option=.*, $range(, also with K, M or G)?$" || { echo "--help does not say so"; return 1; }
	for word in -1 0x 1.5.0 '' nan 99999999999999999999; do
		once "$option ${word:-''}: $range is allowed" 2 timeout 60 "$@" "$word" || return 1
	done
}
while IFS=: read -r option range; do
	# shellcheck disable=SC2086
	ok "$option takes $range" numbers "$range" "$escrow" $option
done <<-END
	demo --parents:1 to 1000
	demo --bytes:1 to 1073741824
	demo --rounds:1 to 1000000
	demo --rails:0 to 16
	demo --lanes:0 to 16
	bench --duration:0.001 to 86400
	bench --repeat:1 to 99
	bench --iterations:1 to 1000000000000
	swap --times:1 to 1000000
	supervise --kill:0 to 86400
	conform --jobs:1 to 1024
	conform --timeout:1 to 86400000
END
ok "supervise -k: a number that is none" once "supervise: --kill -1: 0 to 86400 is allowed" 2 "$escrow" supervise -k -1 -- true

# What ends the options is no argument
ok "info: -- is no argument" once 'no backend "-x"' 2 "$escrow" info -- -x
ok "ledger: -- is no argument" once '"-x" is not a process id' 2 "$escrow" ledger -- -x
ok "supervise: the first -- only" says "-- -x" "$escrow" supervise -- echo -- -x

# Standard output
unwritten() { # TEXT COMMAND...: trouble, and told once with its reason
	local text=$1 rc=0
	shift
	"$@" >/dev/full 2>"$dir/why" || rc=$?
	cat "$dir/why"
	[ $rc = 2 ] && [ "$(grep -c "standard output cannot be written: $text" "$dir/why")" = 1 ]
}
for sub in "bench -b $mock --duration 0.01" "swap -v -n 40 $mock"; do
	# shellcheck disable=SC2086
	ok "${sub%% *}: what cannot be written long before the end" unwritten "No space left" "$escrow" $sub
done
unread() { # WORDS COMMAND...: somebody reads that many lines and goes; it ends, and gives all back
	local lines=$1 rc
	shift
	{ timeout 300 "$escrow" "$@" 2>"$dir/why" || echo $? >"$dir/rc"; } | head -n "$lines" >"$dir/lines"
	rc=$(cat "$dir/rc")
	cat "$dir/why"
	[ "$rc" = 2 ] && [ "$(grep -c "standard output cannot be written: Broken pipe" "$dir/why")" = 1 ] &&
		! grep -q "still charged\|QUARANTINED" "$dir/why"
}
ok "demo: nobody reads what it will print" unread 0 demo -b "$mock" --rounds 1000000 --parents 1 --bytes 4096
ok "bench: who reads goes after a line" unread 1 bench -b "$mock" --duration 3600
ok "bench: who reads goes after a line of the comparison" unread 1 bench -b "$mock" --duration 3600 --baseline raw
ok "swap: who reads goes after a line" unread 1 swap -v -n 1000000 "$mock"

# The ledger
nobody() { # no output that a program could take for a ledger
	"$escrow" ledger --json >"$dir/ledger" 2>"$dir/why"
	[ $? = 77 ] && [ ! -s "$dir/ledger" ] && grep -q "no process serves a ledger" "$dir/why"
}
ok "ledger --json where nobody serves one" nobody
both_ends() { # COMMAND...: while it runs, the ledger is that of both ends
	local pid rc
	"$escrow" "$@" >"$dir/ends" 2>&1 &
	pid=$!
	until "$escrow" ledger >"$dir/text" 2>/dev/null && grep -q "^engine requester on mock" "$dir/text" &&
		grep -q "^engine source on mock" "$dir/text"; do
		kill -0 $pid || { cat "$dir/ends"; return 1; }
	done
	"$escrow" ledger --json >"$dir/json"
	rc=$?
	kill $pid
	wait $pid
	cat "$dir/text"
	[ $rc = 0 ] && [ "$(grep -c "^process " "$dir/text")" = 2 ] && grep -q '"engine" : "source"' "$dir/json" &&
		iconv -f UTF-8 -t UTF-8 "$dir/json" >/dev/null && [ "$(grep -c '"children" : \[' "$dir/json")" -ge 1 ]
}
killed() { # both ends of a demo leave their sockets, which say nothing and go
	local pid sockets
	"$escrow" demo -b "$mock" --rounds 1000000 --parents 1 --bytes 4096 >"$dir/ends" 2>&1 &
	pid=$!
	until "$escrow" ledger "$pid" 2>/dev/null | grep -q "^engine requester on mock.* 1 remotes"; do
		kill -0 $pid || { cat "$dir/ends"; return 1; }
	done
	sockets=$(find "$dir/escrow" -name '[0-9]*')
	kill -STOP $pid # so that the other end is there to be killed
	kill -9 "$(pgrep -P $pid)" $pid
	wait $pid
	ls -l $sockets && nobody || { cat "$dir/why"; return 1; }
	[ "$(wc -l <"$dir/why")" = 1 ] && ! ls $sockets
}
ok "ledger: what killed programs left says nothing, and goes" killed
unanswered() { # a socket at which a living process with that number does not answer; and a file, which stays
	perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die' "$dir/escrow/$$" &&
		: >"$dir/escrow/4000000000" && nobody && [ -f "$dir/escrow/4000000000" ] &&
		once "process $$ serves no ledger" 2 "$escrow" ledger $$
}
ok "ledger: a socket that nobody answers at is no ledger" unanswered
rm -f "$dir/escrow/"[0-9]*
stopped() { # source|requester: that end of a demo; the other one says once what it waits for, and goes on with it
	local pid source other waits rc
	: >"$dir/why"
	"$escrow" demo -b "$mock" --rounds 1000000 --parents 1 --bytes 4096 --json >"$dir/ends" 2>"$dir/why" &
	pid=$!
	until "$escrow" ledger "$pid" 2>/dev/null | grep -q "^engine requester on mock.* 1 remotes"; do
		kill -0 $pid || { cat "$dir/why"; return 1; }
	done
	source=$(pgrep -P $pid)
	if [ "$1" = source ]; then other=$source waits=requester; else other=$pid waits=source; fi
	kill -STOP "$other"
	until grep -q "^escrow: $waits: still waits for " "$dir/why"; do
		kill -0 $pid "$source" || { cat "$dir/why"; return 1; }
	done
	kill -CONT "$other"
	"$escrow" ledger "$pid" | grep "^engine requester on mock.* OPEN"
	rc=$?
	kill $pid
	wait $pid
	cat "$dir/why"
	[ $rc = 0 ] && [ "$(grep -c "^escrow: $waits: still waits for " "$dir/why")" = 1 ]
}
ok "demo: a source that is stopped" stopped source
ok "demo: a requester that is stopped" stopped requester
ok "ledger of a local demo: both ends" both_ends demo -b "$mock" --rounds 1000000 --parents 1 --bytes 4096
ok "ledger of a local bench: both ends" both_ends bench -b "$mock" --duration 3600
echo "1..$n"
