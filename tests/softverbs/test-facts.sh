#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What was measured on rdma_rxe (tests/softroce/facts.c) holds on softverbs, unmodified. Prints TAP.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${top_builddir:-$here/../../build}
if [ -n "${SANITIZERS:-}" ]; then
	echo "1..0 # SKIP a program without the sanitizer's runtime first cannot load a library with it"
	exit 0
fi
export top_builddir=$build
export ESCROW_TEST_RAILS=softverbs0:1:127.77.0.1,softverbs1:1:127.77.1.1
# Not strict: one of the facts is what a device says to a mistake.
exec "$here/run" -- "$build/tests/softroce/facts"
