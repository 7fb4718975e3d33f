#!/bin/bash
# Part of make check-threads: the suite's profiles with threads, transfers and swaps on the mock, all of it
# built with the thread sanitizer; a report of its ends the child with a status, which fails the case.
# Prints TAP.
set -u
export TSAN_OPTIONS=suppressions=$top_srcdir/tests/conform/tsan.supp:${TSAN_OPTIONS:-}
exec "$top_builddir/tools/escrow" conform --tap --timeout 120000 -j 2 --profile thread,data,swap mock
