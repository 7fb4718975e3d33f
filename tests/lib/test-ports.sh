#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Who asks for a port gets one that is his alone. Prints TAP.
set -u
. "$top_srcdir/tests/lib/ports.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkfifo "$dir/up" "$dir/down"
n=0
line() { # NAME COMMAND...
	n=$((n + 1))
	if "${@:2}" >"$dir/said" 2>&1; then echo "ok $n - $1"; else sed 's/^/# /' "$dir/said"; echo "not ok $n - $1"; fi
}
# Of one port only. By another folder, nobody else has been given it, and what counts is who listens.
again() { (free_port "$port" "$port"); }
elsewhere() { (ports_dir=$dir/ports && free_port "$port" "$port"); }
refused() { ! "$@" && grep -q 'no port is free' "$dir/said"; }
listened_on() {
	local rc server
	perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], Listen => 1) or die;
		open $f, ">", $ARGV[1]; print $f "up\n"; close $f; open $f, "<", $ARGV[2]; <$f>' "$port" "$dir/up" "$dir/down" &
	server=$!
	[ "$(cat "$dir/up")" = up ]
	refused elsewhere
	rc=$?
	echo >"$dir/down"
	wait $server
	return $rc
}
not_for_everybody() {
	local low
	read -r low _ </proc/sys/net/ipv4/ip_local_port_range
	[ "$low" -le 12000 ] || [ "$port" -lt "$low" ]
}

free_port || { echo "Bail out! no port"; exit 1; }
line "the kernel gives it to nobody else" not_for_everybody
line "a test that asks gets another one" refused again
line "one that is listened on is given to nobody" listened_on
line "... and is given when nobody listens" elsewhere
echo "1..$n"
