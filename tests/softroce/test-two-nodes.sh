#!/usr/bin/env bash
# TAP. Two guests: bytes from one to the other, the demo with an end on each, over two rails of real kernel verbs; peers
# that are killed in the other guest; a gate by the controller of tests/hardware/run, with an end in each guest; and N04,
# the other machine loses its power.
#   ESCROW_TEST_PARTS   of demo, gate, kills, power (demo kills power); power ends the other guest: last
#   ESCROW_TEST_KILLS, ESCROW_TEST_FIRST   how many kills, from which one on (10, 0)
set -u

here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
build=$(readlink -f "${top_builddir:-$top/build}")
parts=${ESCROW_TEST_PARTS:-demo kills power}
parents=${ESCROW_TEST_PARENTS:-4}
bytes=${ESCROW_TEST_BYTES:-1048576}

# ---- In node 0, which has the other do things ------------------------------------------------------
far() { "$here/far" run "$PEER:18472" "$@"; }

# report NAME COMMAND...: one line; what the command said where it failed
report()
{
	local name=$1 good=yes
	shift
	"$@" > /tmp/said 2>&1 || good=no
	if [ $good = yes ]; then
		echo "ok $name"
	else
		sed 's/^/# /' /tmp/said
		echo "not ok $name"
	fi
	echo "# $SECONDS seconds"
}

# demo OPTION...
demo()
{
	local words=("$build/tools/escrow" demo -b rdma --parents "$parents" --bytes "$bytes" "$@") source rc=0
	"${words[@]}" --listen :18470 &
	source=$!
	far env ESCROW_BACKEND_PATH="$ESCROW_BACKEND_PATH" "${words[@]}" --connect 10.77.0.1:18470 --json < /dev/null > /tmp/demo || rc=$?
	wait $source || rc=$?
	cat /tmp/demo
	return $rc
}
# Each node has its own addresses: the demo's settings are for both, so all are named.
vlans=fd78:1::1,fd78:1::2,fd78:2::1,fd78:2::2
tagged()
{
	local sum=0 rail
	for rail in rail0.7 rail1.7; do
		sum=$((sum + $(cat "/sys/class/net/$rail/statistics/tx_bytes")))
	done
	echo "$sum bytes"
	[ $sum -ge "$bytes" ]
}
read_right() { grep -Eq "\"read_bytes\" *: *$((parents * bytes))" /tmp/demo; }
bytes_right() { grep -Eq '"bytes_right" *: *true' /tmp/demo; }

# tap COMMAND...: a program that prints TAP, of which something ran and nothing failed
tap()
{
	"$@" > /tmp/tap 2>&1
	local rc=$?
	cat /tmp/tap
	[ $rc = 0 ] && grep -q '^ok' /tmp/tap && ! grep -Eq '^not ok|SKIP' /tmp/tap
}

kills() { ESCROW_TEST_FAR="$here/far run $PEER:18472" tap "$build/tests/unit/test-rdma-kill"; }

power()
{
	ESCROW_TEST_POWER=$ESCROW_TEST_SHARED/kill-1 kills
}

# guids COMMAND...: the RNICs of a node, as a profile names them; the command runs what follows it there
guids()
{
	local device line=''
	for device in rxe0 rxe1; do
		line+=" $device=$("$@" cat "/sys/class/infiniband/$device/node_guid" < /dev/null)" || return
	done
	echo "identities=${line# }"
}

gate()
{
	local frozen=$ESCROW_TEST_SHARED/frozen env="env=LD_PRELOAD=$ESCROW_TEST_SHARED/frozen/libobserver.so"
	local rails=$ESCROW_TEST_RAILS
	"$top/tests/hardware/run" --freeze "$frozen" || return
	far mkdir -p /tmp/gate < /dev/null || return
	{
		printf '[source]\n%s\n%s ESCROW_TEST_RAILS=%s\n' "$(guids env)" "$env" "$rails"
		printf 'channel=10.77.0.1:18473\nfrozen=%s\nfolder=/tmp/gate\nlocks=/tmp\n' "$frozen"
		printf '[requester]\nreach=%s\n' "$here/far run $PEER:18472"
		printf '%s\n%s ESCROW_TEST_RAILS=%s\n' "$(guids far)" "$env" "$(far printenv ESCROW_TEST_RAILS < /dev/null)"
		printf 'channel=10.77.0.1:18473\nfrozen=%s\nfolder=/tmp/gate\nlocks=/tmp\n' "$frozen"
	} > /tmp/profile
	cat /tmp/profile
	tap "$top/tests/hardware/run" --profile /tmp/profile --out /tmp/gate --limit 300 \
		--case 'destroy_qp/write/requester/rail0/events/lanes1/strong'
}

inside()
{
	local part
	export ESCROW_BACKEND_PATH=$build/backends/.libs
	[ "$NODE" = 0 ] || exec "$here/far" serve 18472
	trap ': > "$ESCROW_TEST_SHARED/kill-1"' EXIT # nothing else ends it
	for part in $parts; do
		case $part in
		demo)
			report 'both ends closed with nothing charged' demo
			report 'every byte that was read is right' read_right
			report 'every byte and guard is right at both ends' bytes_right
			# the wire tells what was tagged: each way the bytes came once, with headers
			report 'the same over IPv6 on VLANs' demo --parents 1 -s "rdma.rails=$vlans"
			report 'every byte is right there too' bytes_right
			report 'those bytes were tagged' tagged
			;;
		kills) report "${ESCROW_TEST_KILLS:-10} peers are killed in the other guest" kills ;;
		gate) report 'a gate by the controller, with an end in each guest' gate ;;
		power) report 'N04: the other machine loses its power' power ;;
		esac
	done
}
export ESCROW_TEST_KILLS=${ESCROW_TEST_KILLS:-10}
[ "${1:-}" != inside ] || { inside; exit 0; }

# ---- Here ------------------------------------------------------------------------------------------
out=$("$here/run" -n 2 -t "${ESCROW_TEST_LIMIT:-1800}" -- "$(readlink -f "$0")" inside 2>&1)
rc=$?
printf '%s\n' "$out" | awk -v rc=$rc '
	/^0\| (not )?ok / {
		sub(/^0\| /, "")
		good = sub(/^ok /, "")
		sub(/^not ok /, "")
		print (good ? "" : "not ") "ok " ++n " - " $0
		next
	}
	{ print "# " $0 }
	END {
		print (rc == 0 ? "" : "not ") "ok " ++n " - nothing else happened: status " rc
		print "1.." n
	}'
