#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Some simulated runs, and that a seed replays to the byte. Prints TAP. FULL=1: three minutes of runs, from a
# seed that is another one every day.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${top_builddir:-$here/../../build}
simulate=$build/tests/simulate/simulate
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0
. "$here/../lib/say.sh"
# check NAME COMMAND...: and the last thing that it said, however it went: how many runs there were.
check() {
	ok "$@"
	tail -1 "$dir/out" | sed 's/^/# /'
}
again() {
	"$simulate" --runs 1 --seed "$1" --trace "$dir/a" && "$simulate" --runs 1 --seed "$1" --trace "$dir/b" &&
		[ -s "$dir/a" ] && cmp "$dir/a" "$dir/b"
}
bad_luck() {
	local seed rest device
	while read -r seed rest; do
		device=()
		case $rest in
		'as '*) device=(--device "$(sed 's/as \([a-z0-9]*\).*/\1/' <<<"$rest")") ;;
		esac
		case $seed in
		'#'*) ;;
		*) "$simulate" --runs 1 --seed "$seed" "${device[@]}" || return ;;
		esac
	done <"$here/seeds"
}
check "two runs of a seed are the same, byte for byte" again 7
check "seeds that once failed do so no more" bad_luck
check "and so are those of many" "$simulate" --twice --runs 40 --seed 100
if [ -n "${FULL:-}" ]; then
	check "no rule is broken" "$simulate" --runs 1000000 --seconds 180 --seed "$(($(date +%s) / 86400 * 1000000))"
else
	check "no rule is broken" "$simulate" --runs 1000000 --seconds 15
fi
echo "1..$n"
