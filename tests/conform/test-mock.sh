#!/bin/bash
# The mock passes every profile of the suite. The limit is for loaded machines and sanitizers; a case
# takes some ten milliseconds.
export ESCROW_CONFORM_CHILD=$top_builddir/tests/conform/escrow-conform-child
exec "$top_builddir/tools/escrow" conform --tap --timeout 60000 mock
