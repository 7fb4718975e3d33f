#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# A set-user-ID program: where its caller says that backends are, and that copies go, is not looked at.
set -u
name='a set-user-ID program'
nobody=65534
skip() {
	echo "ok 1 - $name # SKIP $1"
	echo '1..1'
	exit 0
}
[ "$(id -u)" = 0 ] || skip 'not root'
[ -z "${SANITIZERS:-}" ] || skip 'sanitizers look at the environment themselves'
command -v setpriv >/dev/null || skip 'no setpriv'
finder=$top_builddir/tests/unit/.libs/finder
[ -x "$finder" ] || finder=$top_builddir/tests/unit/finder
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir "$dir/backends"
cp "$TEST_MODULE_PATH/fake.so" "$dir/backends/theirs.so"
cp "$finder" "$dir/plain"
cp "$finder" "$dir/secure"
chmod 4755 "$dir/secure"

# run PROGRAM AS: its lines, in $out.
run() {
	mkdir -m 700 "$dir/run"
	chown "$2" "$dir/run"
	out=$(ESCROW_BACKEND_PATH=$dir/backends XDG_RUNTIME_DIR=$dir/run \
		setpriv --reuid="$2" --clear-groups "$dir/$1" theirs "$dir/backends/theirs.so" 2>&1)
	made=$(ls "$dir/run")
	rm -rf "$dir/run"
}

n=0
ok() {
	n=$((n + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $n - $1"
	else
		printf '# "%s" in place of "%s"\n' "$2" "$3"
		printf '%s\n' "$out" | sed 's/^/# /'
		echo "not ok $n - $1"
	fi
}
line() { sed -n "s/^$1 //p" <<<"$out"; }

run secure "$nobody"
[ "$(line secure)" = 1 ] || skip 'set-user-ID programs get no other user here'
copy=$(line 'copied to')
ok "$name does not look into the folders of its caller" "$(line found)" ''
ok 'and makes nothing in the folder of its caller' "$made" ''
ok 'but in its own' "${copy%/*}" /tmp/escrow-backends-0
rm -f "$copy"
run plain 0
ok 'one that is not does look there' "$(line found)" "$dir/backends/theirs.so"
ok 'and its copies go there' "$made" escrow-backends
echo "1..$n"
