#!/bin/bash
# Every house rule finds its violation, at its line, and lets a clean file and an excused line pass.
set -u
top_srcdir=${top_srcdir:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
rules=$top_srcdir/tests/house-rules
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" && mkdir -p abi plugin backends/ledger backends/mock backends/rdma tests examples || exit 1
n=0
lead='/* SPDX-License-Identifier: BSD-2-Clause */'

# expect RULE FILE LINE: the line, second in FILE, is reported under RULE at line 2, and nothing else is.
expect() {
	n=$((n + 1))
	printf '%s\n%b\n' "$lead" "$3" >"$2"
	local got
	got=$(perl "$rules" "$2")
	case $got in
	"$2:2: $1: "*) [ "$(wc -l <<<"$got")" = 1 ] && echo "ok $n - finds: $1 ($2)" && return ;;
	esac
	printf '# %s\n' "$got"
	echo "not ok $n - finds: $1 ($2)"
}

# clean FILE LINE: nothing to report.
clean() {
	n=$((n + 1))
	printf '%s\n%b\n' "$lead" "$2" >"$1"
	local got
	if got=$(perl "$rules" "$1"); then echo "ok $n - passes: $2"; else
		printf '# %s\n' "$got"
		echo "not ok $n - passes: $2"
	fi
}

expect 'verbs stay in backends/rdma' plugin/a.c '\tibv_close_device(c);'
expect 'verbs stay in backends/rdma' backends/mock/a.c '#include <infiniband/verbs.h>'
expect 'plugin includes no backend header' plugin/a.c '#include "backends/mock/mock.h"'
expect 'a backend includes no header of the host library' backends/mock/a.c '#include "plugin/loader.h"'
expect 'backends meet through the ABI only' backends/ledger/a.c '#include "backends/mock/mock.h"'
expect 'the ABI needs stddef.h and stdint.h only' abi/a.h '#include <string.h>'
expect 'no GLib here' backends/ledger/a.c '#include <glib.h>'
expect 'no header found by luck' plugin/a.c '#include "loader.h"'
expect 'no typedef for a struct' tests/a.c 'typedef struct a a_t;'
expect 'no leading underscore' plugin/a.c 'static int _take(void)'
expect 'a library does not end its host' plugin/a.c '\texit(1);'
expect 'not safe in a threaded program' plugin/a.c '\tp = strtok(s, ",");'
expect 'no sleep as synchronisation' tests/a.c '\tusleep(10);'
expect 'no modules with global symbols' plugin/a.c '\tdlopen(p, RTLD_NOW | RTLD_GLOBAL);'
expect 'tabs of 8, no trailing space' tests/a.c '        int i;'

clean backends/rdma/a.c '\tibv_close_device(c);'
clean plugin/a.c '\treturn name_is(s, "ibv_close_device("); /* ibv_close_device() */'
clean plugin/a.c '\texit(1); /* house: the child of the probe */'
clean plugin/a.c '\thost->exit(1);'
clean abi/a.h '#include <stdint.h>\n#include <escrow/backend.h>'
clean backends/mock/a.c '#include "backends/ledger/ledger.h"'

n=$((n + 1))
printf 'int i;\n' >tests/a.c
case $(perl "$rules" tests/a.c) in
'tests/a.c:1: licence line: '*) echo "ok $n - finds: licence line" ;;
*) echo "not ok $n - finds: licence line" ;;
esac
n=$((n + 1))
{ echo "$lead"; yes 'int i;' | head -n 500; } >tests/a.c
case $(perl "$rules" tests/a.c) in
'tests/a.c:501: a file is one thing: 501 lines'*) echo "ok $n - finds: a file is one thing" ;;
*) echo "not ok $n - finds: a file is one thing" ;;
esac
echo "1..$n"
