#!/usr/bin/env bash
# TAP. What ./dev softroce promises, from outside and, with "inside", from within the guest. docs/softroce.md.
set -u

here=$(dirname "$(readlink -f "$0")")

# ---- in the guest ----------------------------------------------------------------------------------------------------

# tap NAME COMMAND...: one TAP line for a command; what it said only if it failed
tap()
{
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then
		echo "ok - $name"
	else
		echo "not ok - $name"
		printf '%s\n' "$out" | sed 's/^/# /'
	fi
}

# until_true COMMAND...: tries again until it is true, for five minutes
until_true()
{
	local end=$((SECONDS + 300))
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}

listening_tcp()
{
	ss -ltnH | grep -q ":$1 "
}

listening_cm()
{
	rdma resource show cm_id | grep -q LISTEN
}

rails_are_up()
{
	[ "$(ibv_devices | grep -c rxe)" = 2 ] && [ "$(ibv_devinfo | grep -c 'PORT_ACTIVE')" = 2 ] &&
		[ "$(ibv_devinfo | grep -c 'active_mtu:.*4096')" = 2 ]
}

# Each address of a rail is a GID of its device
rails_have_addresses()
{
	local rail dev
	for rail in ${ESCROW_TEST_RAILS//,/ } ${ESCROW_TEST_RAILS6//,/ }; do
		dev=${rail%%:*}
		ibv_devinfo -v -d "$dev" | grep -q "GID.*[:[:space:]]${rail#*:*:}," || return 1
	done
}

pingpong()
{
	local server
	ibv_rc_pingpong -d rxe0 -g 1 -n 100 > /dev/null &
	server=$!
	until_true listening_tcp 18515 && ibv_rc_pingpong -d rxe0 -g 1 -n 100 127.0.0.1 && wait $server
}

# ping_address ADDRESS [OWN-ADDRESS]
ping_address()
{
	local server
	rping -s -a "$1" -C 10 -S 65535 &
	server=$!
	until_true listening_cm && rping -c -a "$1" ${2:+-I "$2"} -C 10 -S 65535 && wait $server
}

root_is_read_only()
{
	! touch /usr/escrow-was-here && touch /tmp/x && touch /run/x
}

arguments_arrive()
{
	[ $# = 4 ] && [ "$1" = 'a b' ] && [ -z "$2" ] && [ "$3" = $'x\ny' ] && [ "$4" = "it's \$HOME" ]
}

inside_one()
{
	local share=$1 rail
	shift
	echo "waiting"
	tap "the output comes while the command runs" until_true test -e "$share/go"
	tap "the devices are there, their ports active, at MTU 4096" rails_are_up
	tap "the rails have their addresses" rails_have_addresses
	tap "ibv_rc_pingpong over rail 0" pingpong
	for rail in ${ESCROW_TEST_RAILS//,/ } ${ESCROW_TEST_RAILS6//,/ }; do
		tap "rping over ${rail%%:*}, ${rail#*:*:}" ping_address "${rail#*:*:}"
	done
	tap "the root is read-only, /tmp and /run are not" root_is_read_only
	tap "memory may be locked without limit" test "$(ulimit -l)" = unlimited
	tap "the arguments arrive as they were" arguments_arrive "$@"
	tap "a busy host is given time by the kernel" test "$(cat /proc/sys/kernel/hung_task_timeout_secs)" = 600
	tap "the environment arrives" test "${ESCROW_GUEST_TEST:-}" = "two words"
	cp "$share/from-host" "$share/from-guest"
	sh -c 'echo "standard error, opened again" > /dev/stderr'
	exit 3
}

peer_is_gone()
{
	! busybox ping -c 1 -W 1 "$PEER"
}

# Node 0 listens on each rail, node 1 comes to it; then node 0 has node 1 killed. What node 1 has to report goes through the
# shared folder, because its last words may be lost with it.
inside_two()
{
	local address peers report=$ESCROW_TEST_SHARED/report
	if [ "$NODE" = 1 ]; then
		echo "node 1 is here"
		peers=$ESCROW_TEST_PEERS,$ESCROW_TEST_PEERS6
		for address in ${peers//,/ }; do
			tap "rping to $address" until_true rping -c -a "$address" -C 10 -S 65535
		done > "$report.new"
		mv "$report.new" "$report"
		exec sleep 600
	fi
	for address in ${ESCROW_TEST_RAILS//,/ } ${ESCROW_TEST_RAILS6//,/ }; do
		tap "rping from ${address#*:*:}" rping -s -a "${address#*:*:}" -C 10 -S 65535
	done
	until_true test -e "$report"
	cat "$report"
	: > "$ESCROW_TEST_SHARED/kill-1"
	tap "a killed node is gone" until_true peer_is_gone
	exit 5
}

# moved BYTES: whether rail 1 has sent that many
moved()
{
	[ "$(cat /sys/class/net/rail1/statistics/tx_bytes)" -ge "$1" ]
}

# rping's rounds of 65535 bytes are both read and written by the server: each of them crosses the wire twice
inside_hub()
{
	tap "rping from rail 1 to rail 0" ping_address 10.77.0.1 10.77.0.2
	tap "the bytes were on the wire" moved 655350
}

if [ "${1:-}" = inside ]; then
	what=$2
	shift 2
	"inside_$what" "$@"
	exit
fi

# ---- outside ---------------------------------------------------------------------------------------------------------

n=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# report NAME STATUS: a TAP line; on failure with what the guest printed
report()
{
	n=$((n + 1))
	if [ "$2" = 0 ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		tail -n 40 "$dir/said" "$dir/out" "$dir/err" 2> /dev/null | sed 's/^/# /'
	fi
}

# is NAME COMMAND...
is()
{
	local name=$1 r=0
	shift
	"$@" > "$dir/said" 2>&1 || r=$?
	report "$name" $r
}

# guest [OPTION...] -- COMMAND...: runs it; its output is in out and err, its status in status
guest()
{
	env -u ESCROW_TEST_RAILS "$here/run" "$@" > "$dir/out" 2> "$dir/err" < /dev/null
	status=$?
}

# take_over COUNT: the TAP lines of the guest, which must be that many
take_over()
{
	local line got=0
	while read -r line; do
		got=$((got + 1))
		n=$((n + 1))
		echo "${line/ok -/ok $n -}"
	done < <(sed 's/^[01]| //' "$dir/out" | grep -E '^(not )?ok - ')
	grep -E '^([01]\| )?# ' "$dir/out"
	report "the guest came to its last check" "$([ $got = "$1" ]; echo $?)"
}

# complaints FILE: the lines for a console that a test made up
complaints()
{
	printf '%s\n' '# a comment' 'WARNING: .* known_function' > "$dir/known"
	awk -f "$here/complaints.awk" "$dir/known" "$1" | wc -l
}

test_complaints()
{
	printf '[    1.0] harmless\r\n[    1.1] rdma_rxe: loaded\r\n' > "$dir/console"
	is "a quiet kernel is no complaint" test "$(complaints "$dir/console")" = 0
	printf '[ 1.0] WARNING: CPU: 0 PID: 9 at x.c:1 %s+0x1/0x2\n[ 1.0] Call Trace:\n[ 1.0]  f\n[ 1.0] ---[ end trace 0 ]---\n' \
		known_function > "$dir/console"
	is "a known warning is no complaint" test "$(complaints "$dir/console")" = 0
	sed -i 's/known_function/other_function/' "$dir/console"
	is "another warning is one" test "$(complaints "$dir/console")" = 4
	sed 's/other/known/; s/---.*/BUG: unable to handle page fault/' "$dir/console" > "$dir/console2"
	is "a bug behind a known warning is one" test "$(complaints "$dir/console2")" = 1
	echo '[ 9.0] INFO: task rping:12 blocked for more than 120 seconds.' > "$dir/console"
	is "a hung task is one" test "$(complaints "$dir/console")" = 1
}

test_refusals()
{
	guest -w string -- true
	is "an unknown wire is refused by name" test "$status" = 64 -a "$(grep -c "string.*veth and hub" "$dir/err")" = 1
	guest -n 3 -- true
	is "three nodes are refused" test "$status" = 64
	guest -r 2x -- true
	is "a number that is none is refused" test "$status" = 64
	guest -r 2
	is "a missing command is refused" test "$status" = 64
	guest -t 1 -- sleep 60
	is "the time limit holds" test "$status" = 124
	# shellcheck disable=SC2016
	ESCROW_TEST_RAILS=mlx5_0:1:192.0.2.1 "$here/run" -- sh -c 'test -z "${ESCROW_TEST_GUEST:-}" && exit 4' > "$dir/out" 2> "$dir/err"
	is "on a machine with devices the command runs without a guest" test $? = 4
}

# Two that make the guest at once, in an empty cache, get the same one
test_cache()
{
	local deb a b one two
	deb=$(find "${ESCROW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/escrow}" -maxdepth 1 -name '*.deb' | sort -V | tail -n 1)
	ESCROW_CACHE=$dir/cache ESCROW_GUEST_DEB=$deb "$here/guest.sh" > "$dir/one" 2>> "$dir/err" &
	a=$!
	ESCROW_CACHE=$dir/cache ESCROW_GUEST_DEB=$deb "$here/guest.sh" > "$dir/two" 2>> "$dir/err" &
	b=$!
	wait $a
	one=$?
	wait $b
	two=$?
	is "two can make the guest at once" test "$one$two" = 00 -a -s "$(cat "$dir/one")/initrd.cpio"
	is "both get the same" cmp "$dir/one" "$dir/two"
	is "nothing half made is left" test "$(find "$dir/cache" -mindepth 1 -maxdepth 1 | wc -l)" = 2
	rm -rf "$dir/cache"
}

# The guest waits for a file that is written only once its output has been seen
test_one()
{
	local pid
	: > "$dir/out"
	mkdir "$dir/share" "$dir/tmp"
	date +%N > "$dir/share/from-host"
	(
		ESCROW_GUEST_TEST="two words" TMPDIR=$dir/tmp guest -s "$dir/share" -- bash "$here/test-guest.sh" inside one "$dir/share" \
			'a b' '' $'x\ny' "it's \$HOME"
		echo "$status" > "$dir/status"
	) &
	pid=$!
	while kill -0 $pid 2> /dev/null && ! grep -q waiting "$dir/out"; do
		sleep 0.1
	done
	: > "$dir/share/go"
	wait $pid
	take_over 13
	is "the exit status is given back" test "$(cat "$dir/status")" = 3
	is "standard error stays apart" test "$(grep -v '^softroce: warning' "$dir/err")" = "standard error, opened again"
	is "a shared folder can be written" cmp "$dir/share/from-host" "$dir/share/from-guest"
	is "nothing is left behind" test -z "$(ls "$dir/tmp")"
}

# qemu_once HOW: the next QEMU to be started is not as it should be: "ends" at once, or has an "uneasy" kernel, which says
# BUG: while it boots, of a number that is none, or takes its processor for a slow one ("hurried"); those after it are
qemu_once()
{
	local real
	real=$(PATH=${PATH#"$dir/bin:"} command -v qemu-system-x86_64)
	mkdir -p "$dir/bin"
	rm -rf "$dir/once"
	cat > "$dir/bin/qemu-system-x86_64" <<-END
		#!/bin/bash
		mkdir "$dir/once" 2> /dev/null || exec "$real" "\$@"
		case $1 in
		uneasy) exec "$real" "\${@//rcu_cpu_stall_timeout=150/rcu_cpu_stall_timeout=BUG:}" ;;
		hurried) exec "$real" "\${@//tsc=reliable/tsc=reliable tsc_early_khz=300000}" ;;
		esac
		exit 1
	END
	chmod +x "$dir/bin/qemu-system-x86_64"
}

# A kernel that complains before the command has begun is booted again; one that complains or crashes under it fails the run
test_planted()
{
	local PATH=$dir/bin:$PATH
	export ESCROW_ACCEL=tcg
	qemu_once uneasy
	guest -- sh -c 'echo "WARNING: CPU: 0 PID: 1 at drivers/planted.c:1 planted+0x1/0x2" > /dev/kmsg; echo begun'
	is "what the kernel complains of at boot is printed" grep -q "BUG:' invalid for parameter" "$dir/err"
	is "a guest whose boot went wrong is tried again, with a warning" grep -q 'warning.*once more' "$dir/err"
	is "the command ran in one of them only" test "$(cat "$dir/out")" = begun
	is "a warning of the kernel fails the run" test "$status" = 70
	is "and is printed" grep -q planted+0x1 "$dir/err"
	qemu_once hurried
	guest -- sh -c 'echo begun'
	is "a guest whose clock runs away is booted again, with a warning" grep -q 'warning: node 0: its clock is wrong' "$dir/err"
	is "the command ran beside the right clock only" test "$(cat "$dir/out")" = begun -a "$status" = 0
	qemu_once ends
	guest -- sh -c 'echo before; echo c > /proc/sysrq-trigger; echo behind'
	is "a guest that never began is tried again, with a warning" grep -q 'warning.*once more' "$dir/err"
	is "a crash of the kernel fails the run" test "$status" = 70
	is "what was said before it is not lost" test "$(cat "$dir/out")" = before
	unset ESCROW_ACCEL
}

qemu_of()
{
	pgrep -P "$1" qemu > "$dir/qemu.pid"
}

qemu_is_gone()
{
	! kill -0 "$(cat "$dir/qemu.pid")" 2> /dev/null
}

# A run that is killed takes its guest with it, by a signal that can be caught and by the one that cannot
test_killed()
{
	local signal pid
	for signal in TERM KILL; do
		TMPDIR=$dir ESCROW_ACCEL=tcg env -u ESCROW_TEST_RAILS "$here/run" -- sleep 600 > "$dir/out" 2> "$dir/err" &
		pid=$!
		is "the run has a guest" until_true qemu_of $pid
		kill -s $signal $pid
		wait $pid
		is "none is left after SIG$signal" until_true qemu_is_gone
	done
}

test_two()
{
	guest -n 2 -- bash "$here/test-guest.sh" inside two
	take_over 9
	is "the larger exit status is given back, without the killed node" test "$status" = 5
	is "each line names its node" test "$(grep -cvE '^[01]\| ' "$dir/out")" = 0 -a "$(grep -c '^1| node 1 is' "$dir/out")" = 1
}

test_hub()
{
	guest -w hub -- bash "$here/test-guest.sh" inside hub
	take_over 2
	is "exit status 0 is given back" test "$status" = 0
}

[ $# -gt 0 ] || set -- complaints refusals cache one planted killed two hub
for t; do
	"test_$t"
done
echo "1..$n"
