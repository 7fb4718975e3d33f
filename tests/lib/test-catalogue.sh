#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Every case of the fault catalogue has its tests, and docs/catalogue.md says so. A case that is missing somewhere is
# a TODO line: it fails nothing, and is counted. Prints TAP.
set -u
export ESCROW_CONFORM_CHILD=$top_builddir/tests/conform/escrow-conform-child
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$top_builddir/tools/escrow" conform --list >"$dir/list" || { echo "Bail out! escrow conform --list fails"; exit 1; }
cd "$top_srcdir" || exit 1

perl tests/catalogue check <"$dir/list" >"$dir/tap" || { echo "Bail out! tests/catalogue fails"; exit 1; }
grep -v '^1\.\.' "$dir/tap"
n=$(sed -n 's/^1\.\.//p' "$dir/tap")

# finds CASE WHAT EDIT: after this edit of the table the case no longer passes.
finds() {
	n=$((n + 1))
	sed -E "$3" tests/catalogue.tsv >"$dir/table"
	if CATALOGUE_TABLE=$dir/table perl tests/catalogue check <"$dir/list" |
		grep -v TODO | grep -qE "^not ok [0-9]+ - $1"; then
		echo "ok $n - it finds $2"
	else
		echo "not ok $n - it finds $2"
	fi
}
finds Q01 'a test that does not exist' '/^Q01\t/s/reset_releases/reset_releasez/'
finds Q02 'a case that does not exist' '/^Q02\t/s/ESC-QUAR-001/ESC-QUAR-999/'
finds Q03 'a test that says it is of another case' '/^Q03\t/s/destroy_fails/fatal/'
finds Q28 'a model that does not exist' '/^Q28\t/s/-DRULE=2/-DRULE=99/'
finds R30 'a case without a test, and no word why' '/^R30\t/s/ESC-GRANT-010/-/'
finds Q12 'a claim that a test is missing where there is one' '/^Q12\t/s/-$/b: missing/'
finds every 'a case that is not in the table' '/^N05\t/d'
finds docs 'a page that is not up to date' '/^Q12\t/s/old/former/'
echo "1..$n"
