#!/bin/bash
# escrow conform as its users meet it: exit status, reports, waivers, on files that are no backends.
set -u
escrow=$top_builddir/tools/escrow
export ESCROW_CONFORM_CHILD=$top_builddir/tests/conform/escrow-conform-child
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0

# check NAME STATUS COMMAND...: runs it, compares its exit status; what it said is in $dir/out.
check() {
	local name=$1 want=$2 got=0
	shift 2
	"$@" >"$dir/out" 2>&1 || got=$?
	n=$((n + 1))
	if [ $got = "$want" ]; then echo "ok $n - $name"; else
		echo "not ok $n - $name: exit status $got, not $want"
		sed 's/^/# /' "$dir/out" | head -n 20
	fi
}

# said NAME TEXT [FILE]: the last output, or the file, has it.
said() {
	n=$((n + 1))
	if grep -qF -- "$2" "${3:-$dir/out}"; then echo "ok $n - $1"; else
		echo "not ok $n - $1: \"$2\" is not in it"
		sed 's/^/# /' "${3:-$dir/out}" | head -n 20
	fi
}

echo 'this is no object' >"$dir/text.so"
: >"$dir/empty.so"
bad="$dir/text.so"

check 'without a backend it is a usage error' 2 "$escrow" conform
check 'an unknown option is a usage error' 2 "$escrow" conform --no-such-option x
check 'a backend that is not there is trouble' 2 "$escrow" conform no-such-backend
check 'a seed that is no number is a usage error' 2 "$escrow" conform --seed x "$bad"
check 'a profile that is not known is a usage error' 2 "$escrow" conform -p static,cor "$bad"
said 'it names the word and what is allowed' '"cor": static, core'
check 'no case chosen: nothing was run' 77 "$escrow" conform --case 'ESC-NONE-*' "$bad"
said 'it names what was asked for' 'profile all has the id ESC-NONE-*'
check 'no time is a usage error' 2 "$escrow" conform -t 0 "$bad"
said 'it names the value' '--timeout 0: 1 to 86400000 is allowed'
check 'the other static checks have nothing to look at' 1 "$escrow" conform --tap -p static "$bad"
said 'and are skipped' '# SKIP there is nothing to look at: ESC-STATIC-001'
check 'a text is not conformant' 1 "$escrow" conform -p static,core --case 'ESC-STATIC-001' "$bad"
said 'it says why' 'not an ELF file'
said 'it says that this was not the whole profile' 'the chosen cases of static,core'
check 'an empty file is not conformant' 1 "$escrow" conform -p static "$dir/empty.so"
check 'a child cannot load it, and says so' 2 "$escrow" conform --case ESC-ENTRY-001 "$bad"
said 'with the loader'"'"'s text' 'it cannot be loaded'

check 'TAP' 1 "$escrow" conform --tap --case 'ESC-STATIC-00*' "$bad"
said 'has a plan' '1..6'
said 'and a line for a failure' 'not ok 1 - ESC-STATIC-001'
check 'JUnit and JSON' 1 "$escrow" conform --junit "$dir/j.xml" --json "$dir/j.json" \
	--case 'ESC-STATIC-00*' "$bad"
said 'JUnit has the failure' '<failure type="FAIL H2"' "$dir/j.xml"
said 'JSON has it too' '"verdict" : "FAIL"' "$dir/j.json"
said 'JSON has the statement' '"statement"' "$dir/j.json"

waive() { printf 'ESC-STATIC-001\t%s\thttps://example.org/1\tknown\n' "$1" >"$dir/waivers"; }
waive 2999-01-01
check 'a waived failure does not count' 0 "$escrow" conform --waivers "$dir/waivers" \
	--case ESC-STATIC-001 "$bad"
said 'it is told' 'WAIVED'
waive 2001-01-01
check 'an expired waiver counts as a failure' 1 "$escrow" conform --waivers "$dir/waivers" \
	--case ESC-STATIC-001 "$bad"
said 'it is told that it expired' 'expired'
echo 'ESC-STATIC-001 without tabs' >"$dir/waivers"
check 'a bad waiver file is trouble' 2 "$escrow" conform --waivers "$dir/waivers" \
	--case ESC-STATIC-001 "$bad"
said 'it names the line' "$dir/waivers:1: not CASE"
check 'a waiver file that is not there is trouble' 2 "$escrow" conform --waivers "$dir/nowhere" \
	--case ESC-STATIC-001 "$bad"
said 'it is named' "$dir/nowhere"
check 'it is refused before a case is run' 0 test "$(wc -l <"$dir/out")" = 1

check 'a child that is not there is trouble' 2 env ESCROW_CONFORM_CHILD="$dir/none" \
	"$escrow" conform "$bad"
echo "1..$n"
