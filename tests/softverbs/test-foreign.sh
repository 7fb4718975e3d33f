#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Programs nobody here wrote run on the verbs double, unmodified. Prints TAP.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
run=$here/run
export top_builddir=${top_builddir:-$here/../../build}

if [ -n "${SANITIZERS:-}" ]; then
	echo "1..0 # SKIP a program without the sanitizer's runtime cannot load a library with it"
	exit 0
fi
SOFTVERBS_DIR=$(mktemp -d "${TMPDIR:-/tmp}/softverbs-foreign.XXXXXX")
export SOFTVERBS_DIR SOFTVERBS_STRICT=0
out=$SOFTVERBS_DIR/out
server=
cleanup() {
	[ -z "$server" ] || kill "$server" 2>/dev/null
	rm -rf "$SOFTVERBS_DIR"
}
trap cleanup EXIT
n=0
# shellcheck source=tests/lib/ports.sh
. "$here/../lib/ports.sh"
listening() { grep -qE ":$(printf %04X "$1") 0+:0000 0A|:$(printf %04X "$1") 0{32}:0000 0A" /proc/net/tcp /proc/net/tcp6; }
resolves() { ls "$SOFTVERBS_DIR/listen-$1-"* >/dev/null 2>&1; }

# until_true COMMAND...: asks again until it is so, at most a minute.
until_true() {
	local end=$((SECONDS + 60))
	while [ $SECONDS -lt $end ]; do
		"$@" && return 0
		kill -0 "$server" 2>/dev/null || return 1
		sleep 0.05
	done
	return 1
}

result() { # result RC NAME
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		sed 's/^/# /' "$out".* 2>/dev/null | tail -40
		echo "not ok $n - $2"
	fi
}

have() {
	command -v "$1" >/dev/null && return 0
	n=$((n + 1))
	echo "ok $n - $1 # SKIP not installed"
	return 1
}

# both READY SERVER-WORDS -- CLIENT-WORDS: starts the one, waits until READY, runs the other; both must
# end with 0.
both() {
	local ready=$1 port=$2 rc
	shift 2
	local serve=()
	while [ "$1" != -- ]; do serve+=("$1"); shift; done
	shift
	timeout 300 "$run" -- "${serve[@]}" >"$out.server" 2>&1 &
	server=$!
	until_true "$ready" "$port" && timeout 300 "$run" -- "$@" >"$out.client" 2>&1
	rc=$?
	[ $rc = 0 ] || kill "$server" 2>/dev/null
	wait "$server" || rc=1
	server=
	return $rc
}

if have ibv_devinfo; then
	"$run" --rails 3 -- ibv_devinfo -v >"$out.client" 2>&1
	[ "$(grep -c 'state:.*PORT_ACTIVE' "$out.client")" = 3 ] &&
		grep -q 'GID\[ *1\]:.*::ffff:127.77.2.1, RoCE v2' "$out.client"
	result $? "ibv_devinfo sees three active rails with their GIDs"
fi
if have ibv_rc_pingpong; then
	for opt in "" -e; do
		free_port
		# shellcheck disable=SC2086
		both listening "$port" ibv_rc_pingpong $opt -c -g 1 -d softverbs0 -n 200 -p "$port" -- \
			ibv_rc_pingpong $opt -c -g 1 -d softverbs0 -n 200 -p "$port" localhost
		result $? "ibv_rc_pingpong -c $opt"
	done
fi
if have rping; then
	free_port
	# The server ends with an error when the client disconnects, on hardware too; so may the client, whose
	# second thread waits on the channel that its first one destroys. What counts is that it has verified every
	# byte.
	timeout 300 "$run" -- rping -s -a 127.77.1.1 -p "$port" -C 20 -V >"$out.server" 2>&1 &
	server=$!
	until_true resolves "$port" &&
		timeout 300 "$run" -- rping -c -a 127.77.1.1 -p "$port" -C 20 -V -v >"$out.client" 2>&1
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	server=
	[ "$(grep -c '^ping data: rdma-ping-' "$out.client")" = 20 ]
	result $? "rping moves and verifies twenty pings on rail 1"
fi
if have rdma_server; then
	free_port
	both resolves "$port" rdma_server -p "$port" -- rdma_client -s 127.0.0.1 -p "$port"
	result $? "rdma_client and rdma_server"
fi
for t in ib_write_bw ib_read_bw ib_send_bw; do
	have $t || continue
	free_port
	both listening "$port" $t -d softverbs1 -x 1 -F -n 200 -s 65536 -p "$port" -- \
		$t -d softverbs1 -x 1 -F -n 200 -s 65536 -p "$port" localhost
	result $? "$t"
done
if have ib_write_lat; then
	free_port
	both listening "$port" ib_write_lat -d softverbs0 -x 1 -F -n 200 -s 64 -p "$port" -- \
		ib_write_lat -d softverbs0 -x 1 -F -n 200 -s 64 -p "$port" localhost
	result $? "ib_write_lat"
fi
echo "1..$n"
