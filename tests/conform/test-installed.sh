#!/bin/bash
# make installcheck: the installed suite on the installed mock, as a third party would run it.
set -eu
export LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# A staged install (DESTDIR) is not yet where the command was built to look.
[ -z "${DESTDIR:-}" ] || export ESCROW_CONFORM_CHILD=$pkglibexecdir/escrow-conform-child \
	ESCROW_PROBE=$pkglibexecdir/escrow-probe
exec "$bindir/escrow" conform --tap --timeout 60000 "$backenddir/mock.so"
