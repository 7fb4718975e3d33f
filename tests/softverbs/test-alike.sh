#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What the conformance suite says of the mock and of the RDMA backend on softverbs is the same, but for what
# tests/conform/differences allows. The runs are those of tests/conform/test-mock.sh and test-conform.sh, which make ends
# before this. Prints TAP.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${top_builddir:-$here/../../build}
exec "$here/../conform/compare" softverbs "$here/../conform/differences" "$build/tests/conform/test-mock.log" \
	"$build/tests/softverbs/test-conform.tap"
