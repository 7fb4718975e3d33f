# SPDX-License-Identifier: BSD-2-Clause
# To be sourced by a test: what a command says and how it ends, as TAP. Wants $dir; counts in $n.

# ok NAME COMMAND...: one line, and what the command said if it failed.
ok() {
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >"$dir/out" 2>&1; then
		echo "ok $n - $name"
	else
		sed 's/^/# /' "$dir/out"
		echo "not ok $n - $name"
	fi
}

skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }

# status N COMMAND...: the command ends with N.
status() {
	local want=$1 got=0
	shift
	"$@" || got=$?
	[ "$got" = "$want" ] || { echo "exit status $got, not $want"; return 1; }
}

# says TEXT COMMAND...: what it prints on either output has this text.
says() {
	local text=$1 out
	shift
	out=$("$@" 2>&1)
	case $out in *"$text"*) return 0 ;; esac
	printf '%s\nlacks: %s\n' "$out" "$text"
	return 1
}

# lacks TEXT COMMAND...: it works, and does not print this text.
lacks() {
	local text=$1 out
	shift
	out=$("$@" 2>&1) || return 1
	case $out in *"$text"*) printf '%s\nhas: %s\n' "$out" "$text"; return 1 ;; esac
}
