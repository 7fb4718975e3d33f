#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The whole conformance suite on the RDMA backend, on softverbs, once as the plainest device and once as the
# nastiest. Prints TAP; what the suite said of the plainest is left for test-alike.sh.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${top_builddir:-$here/../../build}
export top_builddir=$build
export ESCROW_BACKEND_PATH=${ESCROW_BACKEND_PATH:-$build/backends/.libs}
export ESCROW_CONFORM_CHILD=${ESCROW_CONFORM_CHILD:-$build/tests/conform/escrow-conform-child}
escrow=$build/tools/escrow
if [ -n "${SANITIZERS:-}" ]; then
	# Not by libtool's script: the shell and its helpers would be searched for leaks too.
	escrow=$build/tools/.libs/escrow
	export LD_LIBRARY_PATH=$build/plugin/.libs LSAN_OPTIONS=suppressions=$here/../lsan.supp
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
n=0
# one NAME LEAST CONFORM-OPTIONS OPTIONS...: at least so many cases pass and none fails; what did is shown.
one() {
	local name=$1 least=$2 chosen=$3 cases
	shift 3
	# shellcheck disable=SC2086
	"$here/run" --strict "$@" -- "$escrow" conform --tap --timeout 60000 $chosen rdma >"$out" 2>&1
	local rc=$?
	n=$((n + 1))
	cases=$(grep -c '^ok ' "$out")
	if [ $rc = 0 ] && [ "$cases" -ge "$least" ]; then
		echo "ok $n - $name: $cases cases"
	else
		grep -A20 '^not ok' "$out" | sed 's/^/# /'
		tail -3 "$out" | sed 's/^/# /'
		echo "not ok $n - $name: status $rc, $cases cases passed"
	fi
}
one "the RDMA backend conforms on softverbs" 193 ''
cp "$out" "$build/tests/softverbs/test-conform.tap"
one "the RDMA backend conforms on the adversary" 193 '' --adversary --seed 11
# Its successor is a mock, and the other way round.
one "an engine of it gives way to one of the mock" 3 '--profile swap --with mock'
echo "1..$n"
