#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What tests/coverage/report says of a made-up source: kinds, figures, and what it fails for. Prints TAP.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
report=$(cd "$top/tests/coverage" && pwd)/report
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
mkdir backends
n=0
check() {
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >said 2>&1; then
		echo "ok $n - $name"
	else
		sed 's/^/# /' out err said
		echo "not ok $n - $name"
	fi
}
# Status, and then the words that the output has.
says() {
	local want=$1 rc=0 w
	shift
	"$report" "${args[@]}" . >out 2>err || rc=$?
	[ $rc = "$want" ] || { echo "status $rc"; return 1; }
	for w in "$@"; do grep -qF -- "$w" out err page || { echo "not said: $w"; return 1; }; done
}
export COVERAGE_KINDS=kinds COVERAGE_PAGE=page

printf '%s\n' 'static int f(int a)' '{' '	if (a && !lost(a))' '		return 1;' '	return 0;' '}' \
	'int g(void)' '{' '	return -1;' '}' >backends/x.c
cat >coverage.json <<'J'
{"files": [{"file": "backends/x.c", "functions": [], "lines": [
 {"line_number": 2, "count": 0, "gcovr/noncode": true, "branches": []},
 {"line_number": 3, "count": 4, "branches": [{"count": 4}, {"count": 0}, {"count": 4}, {"count": 0}]},
 {"line_number": 4, "count": 0, "branches": []},
 {"line_number": 5, "count": 4, "branches": []},
 {"line_number": 9, "count": 0, "branches": []}]}]}
J
printf '%s\n' '# a page' '<!-- ./dev coverage --write -->' >page
printf '%s\n' '= lost: what is lost' 'x.c f return 1' 'x.c f lost\(' '= wrong place: not here' 'y.c * .' '* h .' >kinds

args=()
check "a line of no kind fails, and is named with its function" says 1 'backends/x.c:9: g: ' 'return -1;' '| 1 | 2 | lost |'
check "but not one of a kind" bash -c '! grep -q x.c:4: err'
echo 'x.c * .' >>kinds
check "nor does a rule for all functions explain a line" says 1 'backends/x.c:9: g: ' '| 1 | 2 | lost |'
sed -i '$d' kinds
echo '* g .' >>kinds
check "a page without figures is out of date" says 2 'out of date'
args=(--write)
check "they are written" says 0 '50.0 % of 4 lines and 50.0 % of 4 branches' '| 1 | 0 | wrong place |' '| backends/x.c | 50.0 of 4 | 50.0 of 4 |'
check "behind what the page says" grep -qx '# a page' page
args=()
check "and are then as measured" says 0
sed -i 's/^50.0 %/51.1 %/' page
check "and too old when more than a point off" says 2 'out of date'
args=(--write)
check "writing again leaves one table" bash -c '"$0" --write . && [ $(grep -c "^| file" page) = 1 ]' "$report"
echo "1..$n"
