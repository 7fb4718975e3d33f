# Shared by the tests of the ABI headers (sourced). A set of headers is a folder that holds escrow/*.h.
set -u
top_srcdir=${top_srcdir:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
tests_run=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
read -ra cc <<<"${CC:-gcc}"
published=$(printf '%s\n' "$top_srcdir"/abi/r[0-9]* | sort -V)

# check NAME COMMAND...: one TAP line; what the command said becomes comments if it failed.
check() {
	local name=$1
	shift
	tests_run=$((tests_run + 1))
	if "$@" >"$tmp/said" 2>&1; then
		echo "ok $tests_run - $name"
	else
		sed 's/^/# /' "$tmp/said"
		echo "not ok $tests_run - $name"
	fi
}

skip() {
	tests_run=$((tests_run + 1))
	echo "ok $tests_run - $1 # SKIP $2"
}

plan() { echo "1..$tests_run"; }

# A gate returns 0 (passes), 1 (refuses) or 2 (could not judge).
# refuse COMMAND...: passes if the gate refuses, and only then.
refuse() {
	local rc=0
	"$@" || rc=$?
	[ $rc = 1 ] || { echo "status $rc, 1 was wanted: $*"; return 1; }
}

# revision DIR: the number that the headers in DIR state.
revision() { sed -n 's/^#define ESCROW_REVISION \([0-9]*\)u$/\1/p' "$1/escrow/backend.h"; }

# structs DIR: the public structs, one a line.
structs() { sed -n 's/^struct \(escrow_[a-z_]*\) {$/\1/p' "$1"/escrow/*.h | sort -u; }

# macros DIR: the ESCROW_ macros and their values as the compiler sees them, sorted.
macros() {
	local h
	for h in "$1"/escrow/*.h; do printf '#include <escrow/%s>\n' "${h##*/}"; done |
		"${cc[@]}" -I"$1" -std=c11 -dM -E -x c - | sed -n 's/^#define \(ESCROW_.*\)/\1/p' |
		grep -v '^ESCROW_[A-Z]*_H ' | sort
}

# anchor DIR OUT.so [OLD]: a library whose one function takes pointers to all public structs, so that
# abidw sees every type. It is generated: a struct that was forgotten would not be guarded. With OLD
# the structs and the headers are those that OLD has.
anchor() {
	local dir=$1 out=$2 of=${3:-$1} h s
	{
		for h in "$of"/escrow/*.h; do printf '#include <escrow/%s>\n' "${h##*/}"; done
		echo 'void escrow_anchor(escrow_entry_fn entry'
		for s in $(structs "$of"); do printf ', const struct %s *%s\n' "$s" "$s"; done
		echo ');'
		echo 'void escrow_anchor(escrow_entry_fn entry'
		for s in $(structs "$of"); do printf ', const struct %s *%s\n' "$s" "$s"; done
		echo ') { (void)entry;'
		for s in $(structs "$of"); do printf '(void)%s;\n' "$s"; done
		echo '}'
	} >"$tmp/anchor.c"
	"${cc[@]}" -I"$dir" -std=gnu11 -g -O0 -shared -fPIC -o "$out" "$tmp/anchor.c"
}
