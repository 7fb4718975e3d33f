#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# escrow supervise: the fence comes after the last process, and only then. Prints TAP.
set -u
escrow=$top_builddir/tools/escrow
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_RUNTIME_DIR=$dir/run
mkdir -m 700 "$dir/run"
file=$dir/fenced
socket=$dir/socket
mkfifo "$dir/err" "$dir/go" "$dir/nap"
n=0

# engine HEX: what an engine's host says to its supervisor; prints the answer.
cat >"$dir/engine" <<'PERL'
use IO::Socket::UNIX;
my $s = IO::Socket::UNIX->new(Peer => $ENV{ESCROW_SUPERVISOR} // $ARGV[1]) or die "no supervisor: $!\n";
print $s "engine $ARGV[0]\n";
$s->flush;
print scalar <$s>;
PERL
# wait FILE SOCKET: what a consumer hears, to the end.
cat >"$dir/consumer" <<'PERL'
use IO::Socket::UNIX;
use Errno;
my $s;
until ($s = IO::Socket::UNIX->new(Peer => $ARGV[0])) {
	die "no socket: $!\n" unless $!{ECONNREFUSED}; # it has its name, and is not listened on yet
	select undef, undef, undef, 0.02;
}
$| = 1;
print "listening\n";
print while <$s>;
print "end\n";
PERL
one=0123456789abcdef0123456789abcdef
two=fedcba9876543210fedcba9876543210

ok() {
	local name=$1
	shift
	n=$((n + 1))
	rm -f "$file"
	if "$@" >"$dir/out" 2>&1; then
		echo "ok $n - $name"
	else
		sed 's/^/# /' "$dir/out"
		echo "not ok $n - $name"
	fi
}

supervise() { timeout 600 "$escrow" supervise -f "$file" -s "$socket" "$@"; }

# status N COMMAND...: the command ends with N.
status() {
	local want=$1 got=0
	shift
	"$@" || got=$?
	[ "$got" = "$want" ] || { echo "exit status $got, not $want"; return 1; }
}

# refused TEXT ARGS...: status 2, the text, and CMD, `touch ran`, has not been run.
refused() {
	local text=$1 out rc=0
	shift
	rm -f "$dir/ran"
	out=$("$escrow" supervise "$@" 2>&1) || rc=$?
	echo "$out (status $rc)"
	[ $rc = 2 ] && [ ! -e "$dir/ran" ] && [[ $out == *"$text"* ]]
}

# start ARGS...: in the background, $pid; what it says on standard error is heard on descriptor 9.
start() {
	"$escrow" supervise -f "$file" -s "$socket" "$@" 2>"$dir/err" &
	pid=$!
	exec 9<"$dir/err"
}

heard() {
	local line
	while read -r -t 600 line <&9; do
		echo "$line"
		case $line in *"$1"*) return 0 ;; esac
	done
	echo "not heard: $1"
	return 1
}

fences() { diff <(printf 'fenced %s\n' "$@") "$file"; }
unfenced() { [ ! -s "$file" ] || { echo "fenced too early"; return 1; }; }

both_engines_of_a_demo() {
	supervise -- "$escrow" demo -b "$top_builddir/backends/.libs/mock.so" --parents 1 --bytes 4096 >/dev/null &&
		[ "$(grep -cxE 'fenced [0-9a-f]{32}' "$file")" = 2 ] && [ ! -e "$socket" ]
}

# What a child that outlives CMD does with its descriptors and its session is no matter.
# outlived_by WHAT: CMD says its engine, does that and ends with 3; a child of it waits.
outlived_by() {
	start -- bash -c "perl '$dir/engine' $one >'$dir/answer'; $1"
	heard "the fence waits for" || return 1
	unfenced || return 1
	echo go >"$dir/go" # the child ends
	status 3 wait $pid && grep -qx "known $one" "$dir/answer" && fences $one
}

consumer_hears_after_the_last() {
	local line
	start -- bash -c "read <'$dir/go'; perl '$dir/engine' $one; (read <'$dir/go') & exit 0"
	until [ -S "$socket" ]; do kill -0 $pid || return 1; done
	exec 8< <(exec perl "$dir/consumer" "$socket")
	read -r line <&8 && [ "$line" = listening ] || return 1
	echo go >"$dir/go"
	heard "the fence waits for" || return 1
	unfenced || return 1
	echo go >"$dir/go"
	read -r line <&8 && [ "$line" = "fenced $one" ] || { echo "consumer: $line"; return 1; }
	fences $one # what was told on the socket is in the file by then
	read -r line <&8 && [ "$line" = end ] && wait $pid
}

# A consumer of a supervisor that is killed gets an end without a fence, which is no proof.
killed_supervisor() {
	local child line
	start -- bash -c "perl '$dir/engine' $one; echo \$\$ >'$dir/go'; read <'$dir/go'"
	read -r child <"$dir/go"
	exec 8< <(exec perl "$dir/consumer" "$socket")
	read -r line <&8
	kill -9 $pid
	wait $pid
	read -r line <&8
	kill -9 "$child"
	[ "$line" = end ] && unfenced
}

terminated() {
	# A read that ends by itself: bash looks for signals before a system call, and one may come between.
	start -- bash -c "trap 'exit 5' TERM; exec 7<>'$dir/nap'; perl '$dir/engine' $one; echo ready >'$dir/go'
		while :; do read -t 0.2 -u 7; done"
	read -r _ <"$dir/go"
	kill -TERM $pid
	status 5 wait $pid && fences $one
}

terminated_when_only_the_rest_lives() {
	start -- bash -c "perl '$dir/engine' $one; (exec setsid sleep 1000) & exit 0"
	heard "the fence waits for" && unfenced && kill -TERM $pid && wait $pid && fences $one
}

rest_is_killed() {
	supervise --kill 0 -- bash -c "perl '$dir/engine' $one; trap '' TERM; (exec setsid sleep 1000) & exit 4"
	[ $? = 4 ] && fences $one
}

stranger_is_refused() {
	local answer
	start -- bash -c "echo ready >'$dir/go'; read <'$dir/go'"
	read -r _ <"$dir/go"
	answer=$(perl "$dir/engine" $one "$socket")
	echo "$answer"
	echo go >"$dir/go"
	wait $pid && [[ $answer == "refused: process "* ]] && unfenced
}

# refuses LINE: an announcement that is none.
refuses() {
	supervise -- perl "$dir/engine" "$1" >"$dir/answer" 2>/dev/null
	cat "$dir/answer"
	grep -q "^refused:" "$dir/answer" && unfenced
}

listen='use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die;'
stale_socket() {
	rm -f "$socket"
	perl -e "$listen" "$socket" && [ -S "$socket" ] || return 1
	supervise -- perl "$dir/engine" $one && fences $one
}

served_socket() {
	local rc server
	rm -f "$socket"
	perl -e "$listen"' open my $go, ">", $ARGV[1]; print $go "up\n"; close $go; <STDIN>' "$socket" "$dir/go" < <(exec sleep 1000) &
	server=$!
	read -r _ <"$dir/go"
	refused "another process serves it" -f "$file" -s "$socket" -- touch "$dir/ran"
	rc=$?
	kill $server
	wait $server
	rm -f "$socket"
	return $rc
}

two_share_a_file() {
	start -- bash -c "perl '$dir/engine' $one; echo ready >'$dir/go'; read <'$dir/go'"
	read -r _ <"$dir/go"
	"$escrow" supervise -f "$file" -- perl "$dir/engine" $two || return 1
	fences $two || return 1
	echo go >"$dir/go"
	wait $pid && fences $two $one
}

last_4096_are_kept() {
	seq 5000 | sed 's/^/fenced /' >"$file"
	supervise -- perl "$dir/engine" $one || return 1
	diff <(seq 905 5000 | tail -n 4095; echo $one) <(sed 's/^fenced //' "$file")
}

file_breaks_meanwhile() {
	supervise -- bash -c "perl '$dir/engine' $one; rm '$file'; mkdir '$file'"
	local rc=$?
	rmdir "$file"
	[ $rc = 2 ]
}

json() {
	supervise --json -- bash -c "perl '$dir/engine' $one >/dev/null; kill -9 \$\$" >"$dir/json"
	[ $? = 137 ] && perl -MJSON::PP -0ne '$j = decode_json($_);
		exit !($j->{exit_status} == 137 && $j->{signal} == 9 && $j->{published} && $j->{reaped} == 1
			&& "@{$j->{incarnations}}" eq "'$one'")' "$dir/json"
}

engine_without_its_supervisor() {
	ESCROW_SUPERVISOR=$dir/nobody "$escrow" demo -b "$top_builddir/backends/.libs/mock.so" --parents 1 >"$dir/text" 2>&1
	[ $? != 0 ] && grep -q "ESCROW_SUPERVISOR is $dir/nobody: no answer" "$dir/text"
}

echo "1..30"
ok "both engines of a demo are fenced, and the socket is gone" both_engines_of_a_demo
ok "a status of 7 is passed on" status 7 supervise -- sh -c 'exit 7'
ok "death by a signal is 128 and its number" status 143 supervise -- sh -c 'kill -TERM $$'
ok "a forked child keeps the fence away" outlived_by "(read <'$dir/go') & exit 3"
ok "... and one that forked twice, in a session of its own" outlived_by "(setsid bash -c \"(read <'$dir/go') &\") & wait; exit 3"
ok "... and one without any descriptor of ours" outlived_by "(exec </dev/null >/dev/null 2>&1; read <'$dir/go') & exit 3"
ok "who is connected hears it after the last one, and it is in the file then" consumer_hears_after_the_last
ok "a supervisor that is killed publishes nothing" killed_supervisor
ok "SIGTERM goes to CMD" terminated
ok "... and to what it left behind" terminated_when_only_the_rest_lives
ok "--kill ends what CMD left behind" rest_is_killed
ok "a process that is not below the supervisor is refused" stranger_is_refused
ok "an incarnation that is too short is refused" refuses abc
ok "... and one with other letters" refuses 0123456789ABCDEF0123456789abcdef
ok "... and a line without end" refuses "$(printf '%0200d' 0)"
ok "a command that is not there" refused "cannot run $dir/nonsense: No such file" -f "$file" -s "$socket" -- "$dir/nonsense"
ok "no command" refused "no command" -f "$file" -s "$socket"
ok "a number out of range is named" refused "--kill 86401: 0 to 86400 is allowed" --kill 86401 -- touch "$dir/ran"
ok "an unknown option points to --help" refused "escrow supervise --help" --frobnicate -- touch "$dir/ran"
ok "a file in no folder: CMD is not run" refused "cannot write $dir/no/fenced" -f "$dir/no/fenced" -s "$socket" -- touch "$dir/ran"
echo "root:x:0:0" >"$dir/passwd"
ok "a file that is something else is left alone" refused 'a line that is no fence: "root:x:0:0"' -f "$dir/passwd" -s "$socket" -- touch "$dir/ran"
ok "a socket whose name is taken by something else" refused "something else has that name" -f "$file" -s "$dir/passwd" -- touch "$dir/ran"
ok "a socket whose name is too long" refused "at most 107 are allowed" -f "$file" -s "$dir/$(printf '%0120d' 0)" -- touch "$dir/ran"
ok "a socket that another process serves" served_socket
ok "a stale socket is replaced" stale_socket
ok "two supervisors share a file" two_share_a_file
ok "the last 4096 fences are kept" last_4096_are_kept
ok "a file that cannot be written in the end is status 2" file_breaks_meanwhile
ok "--json" json
ok "an engine that its supervisor does not hear of is not opened" engine_without_its_supervisor
