#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What README.md and the manual pages say is true: the host in the README compiles and runs, the
# example host runs on the mock, and header, tables, pages and programs name the same things.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
header=$top_srcdir/abi/escrow/backend.h
n=0

# shellcheck source=tests/lib/say.sh
. "$top_srcdir/tests/lib/say.sh"

# The first C block of the README, built as a stranger would, against the tree.
readme_host() {
	local n_lines
	mkdir -p "$dir/include/escrow"
	ln -s "$top_srcdir"/abi/escrow/*.h "$top_srcdir/plugin/escrow.h" "$dir/include/escrow/"
	sed -n '/^```c$/,/^```$/p' "$top_srcdir/README.md" | sed '1d;/^```$/,$d' >"$dir/host.c"
	n_lines=$(grep -c '[^[:space:]]' "$dir/host.c")
	[ "$n_lines" -gt 20 ] && [ "$n_lines" -le 45 ] || { echo "$n_lines lines are not on the first screen"; return 1; }
	# shellcheck disable=SC2086
	$CC -std=c11 -Wall -Wextra $SANITIZER_CFLAGS -I"$dir/include" -o "$dir/host" "$dir/host.c" \
		-L"$top_builddir/plugin/.libs" -lescrow -Wl,-rpath,"$top_builddir/plugin/.libs" || return 1
	[ "$(timeout 600 "$dir/host")" = "in escrow" ]
}

# It hides no error: a grant beyond the region is told by the call, the status and the text.
readme_host_fails() {
	local rc=0
	sed 's/\.length = 4096, \.rights/.length = 4097, .rights/' "$dir/host.c" >"$dir/fails.c"
	cmp -s "$dir/host.c" "$dir/fails.c" && return 1
	# shellcheck disable=SC2086
	$CC -std=c11 $SANITIZER_CFLAGS -I"$dir/include" -o "$dir/fails" "$dir/fails.c" \
		-L"$top_builddir/plugin/.libs" -lescrow -Wl,-rpath,"$top_builddir/plugin/.libs" || return 1
	timeout 600 "$dir/fails" 2>"$dir/why" || rc=$?
	cat "$dir/why"
	[ $rc = 1 ] && grep -q "escrow_grant(.*: E_INVALID grant: " "$dir/why"
}

minimal_host() {
	[ "$(wc -l <"$top_srcdir/examples/minimal-host.c")" -lt 150 ] || return 1
	[ "$(timeout 600 "$top_builddir/examples/minimal-host" "$top_builddir/backends/.libs/mock.so")" = "in escrow" ]
}

# same NAME1 NAME2: two sorted lists in $dir are equal.
same() { diff "$dir/$1" "$dir/$2"; }

slots() {
	sed -n '/^struct escrow_ops {/,/^};/p' "$header" | grep -o '(\*[a-z_]*)' | tr -d '(*)' | sort
}

slots_have_states() {
	slots | grep -vx open >"$dir/slots"
	grep -v '^#' "$top_srcdir/abi/states.tsv" | cut -f1 | grep -vx slot | sort >"$dir/states"
	same slots states
}

pages_have_slots() {
	slots | while read -r s; do
		awk -f "$top_srcdir/docs/backend-page.awk" "$header" | grep -qx "## $s" ||
			{ echo "no section: $s"; exit 1; }
	done
}

# Every constant of the header that a host may meet is on the page.
pages_have_constants() {
	awk -f "$top_srcdir/docs/backend-page.awk" "$header" >"$dir/page"
	grep -oE '^#define ESCROW_(E|EV|CAP|STATE|CHARGE|RECEIPT|OWNER|STEP|WEAK|CLOSE|MAY)_[A-Z_]+' "$header" |
		cut -d' ' -f2 | while read -r c; do
			grep -qF "*$(sed 's/_/\\_/g' <<<"$c")*" "$dir/page" || { echo "not on the page: $c"; exit 1; }
		done
}

# Every slot is named by a clause, by its case or in words.
clauses_name_slots() {
	slots | while read -r s; do
		grep -qw "$s" "$top_srcdir/abi/clauses.tsv" || { echo "no clause names $s"; exit 1; }
	done
}

command_page() {
	"$top_builddir/tools/escrow" help | awk '/^  [a-z]/ {print $1}' | while read -r c; do
		grep -qE "^\*$c\*" "$top_srcdir/docs/escrow.1.scd" || { echo "not in escrow(1): $c"; exit 1; }
	done
}

demo_options() {
	"$top_builddir/tools/escrow" demo --help | grep -oE -- '--[a-z]+' | sort -u | grep -vx -- --help |
		while read -r o; do
			grep -qF -- "*$o*" "$top_srcdir/docs/escrow.1.scd" || { echo "not in escrow(1): $o"; exit 1; }
		done
}

# page_entry KEY: its definition in the page of the RDMA backend, on one line.
page_entry() {
	awk -v key="*$1*" '/^$/ { on = 0 } /^\*/ && index($0, key) { on = 1 } on' \
		"$top_srcdir/docs/escrow-rdma.7.scd" | tr -s '\n\t' ' '
}

# size BYTES: as the page writes it.
size() {
	local n=$1 unit= next
	for next in K M G; do
		[ $((n % 1024)) = 0 ] || break
		n=$((n / 1024)) unit=$next
	done
	echo "$n$unit"
}

# entry_says KEY DEFAULT KIND MIN MAX: a number's range and default are those of the table.
entry_says() {
	local entry range="$4..$5"
	entry=$(page_entry "$1")
	[ "$4..$5" != 0..1 ] || range='0 or 1'
	[ "$3" != SIZE ] || range="$(size "$4")..$(size "$5") bytes"
	[ "$3" != MS ] || range+=' ms'
	case $entry in
	*"$range, default $2"[.\ ]*) ;;
	*) echo "$1: \"$entry\" lacks \"$range, default $2\""; return 1 ;;
	esac
}

# Every key of the RDMA backend has its place in its page, and says what the table says.
rdma_keys() {
	local keys key value min max kind
	keys=$(tr '\n' ' ' <"$top_srcdir/backends/rdma/options.h" |
		grep -oE 'NUMBER\([a-z_0-9]+, "-?[0-9]*", -?[0-9]+, [0-9]+|TEXT\([a-z_0-9]+, "' | tr -d '",' | tr '(' ' ')
	[ "$(printf '%s\n' "$keys" | wc -l)" -gt 10 ] || return 1
	while read -r _ key value min max; do
		[ -n "$(page_entry "rdma.$key")" ] || { echo "no key: rdma.$key"; return 1; }
		kind=COUNT
		[[ $key != *_ms ]] || kind=MS
		[ -z "$max" ] || entry_says "rdma.$key" "$value" $kind "$min" "$max" || return 1
	done <<<"$keys"
}

# So has every key that all backends take. Quotas stand in a table: the default of each is 0, and their text
# says where they end.
engine_keys() {
	local keys key value kind min max
	keys=$(tr -d '\\' <"$top_srcdir/backends/engine/config.h" | tr -s '\n\t' ' ' |
		grep -oE 'X\("[a-z_.]+", "[0-9]+[KMG]?", [A-Z]+, [0-9]+, [A-Z0-9_]+' | tr -d '",' | sed 's/X(//')
	[ "$(printf '%s\n' "$keys" | wc -l)" = "$(grep -cE '^	X\("' "$top_srcdir/backends/engine/config.h")" ] ||
		{ echo "not all of the table was read: $keys"; return 1; }
	while read -r key value kind min max; do
		if [[ $max != UINT* ]]; then
			entry_says "$key" "$value" "$kind" "$min" "$max" || return 1
		elif [ "$value $min" != '0 0' ] || ! grep -qF "*$key*" "$top_srcdir/docs/escrow-rdma.7.scd"; then
			echo "no quota of the default 0: $key"
			return 1
		fi
	done <<<"$keys"
}

# And every counter.
engine_counters() {
	local names name
	names=$(sed -nE 's/^	COUNTER\([a-z_]+, "(.*)"\),$/\1/p' "$top_srcdir/backends/engine/ext.c"
		sed -n '/^static void rail_counter/,/;$/p' "$top_srcdir/backends/engine/ext.c" |
			grep -oE '"[a-z.]+"' | tr -d '"' | sed 's/^/rail.N./'
		sed -n '/^static void memory_counter/,/;$/p' "$top_srcdir/backends/engine/ext.c" |
			grep -oE '"[a-z_]+"' | tr -d '"' | sed 's/^/memory./')
	[ "$(printf '%s\n' "$names" | wc -l)" -ge 19 ] || { echo "not all were read: $names"; return 1; }
	for name in $names; do
		grep -qF "_${name}_" "$top_srcdir/docs/escrow-rdma.7.scd" || { echo "no counter: $name"; return 1; }
	done
}

SANITIZER_CFLAGS=
[ -z "${SANITIZERS:-}" ] || SANITIZER_CFLAGS=-fsanitize=$SANITIZERS
echo "1..12"
ok "the host in the README compiles, and what it prints is right" readme_host
ok "... and what fails is told" readme_host_fails
ok "the minimal host is under 150 lines and runs on the mock" minimal_host
ok "every slot stands in the table of states" slots_have_states
ok "every slot has its section in escrow_backend(3)" pages_have_slots
ok "every constant is in escrow_backend(3)" pages_have_constants
ok "every slot is named by a clause" clauses_name_slots
ok "every sub-command is in escrow(1)" command_page
ok "every option of demo is in escrow(1)" demo_options
ok "every key of the RDMA backend is in escrow-rdma(7), with its range and default" rdma_keys
ok "so is every key that all backends take" engine_keys
ok "and every counter of an engine" engine_counters
