#!/bin/bash
# The mock with one rail: its peers have one connection, which ops then take the short way of
# (backends/engine/transfer.c).
export ESCROW_CONFORM_CHILD=$top_builddir/tests/conform/escrow-conform-child
exec "$top_builddir/tools/escrow" conform --tap --timeout 60000 --config mock.rails=1 --profile core,data,fault mock
