#!/bin/bash
# Old and new, both ways: a host and a backend, each built against every published revision, today's
# headers, and a generated future, work together in what they have in common.
. "$(dirname "$0")/abi-lib.sh"
perl "$top_srcdir/tests/abi/future-header" "$top_srcdir/abi" "$tmp/future"
skeleton=$top_srcdir/examples/backend-skeleton
flags=(-std=gnu11 -O1 -g -Wall -Wextra -Werror -fvisibility=hidden)

headers() { case $1 in today) echo "$top_srcdir/abi" ;; future) echo "$tmp/future" ;; *) echo "$top_srcdir/abi/$1" ;; esac; }
host() { "${cc[@]}" "${flags[@]}" -I"$(headers "$1")" -o "$tmp/host-$1" "$top_srcdir/tests/abi/version-host.c" -ldl; }
backend() {
	"${cc[@]}" "${flags[@]}" -I"$(headers "$1")" -shared -fPIC -Wl,-z,defs -pthread \
		-o "$tmp/skeleton-$1.so" "$skeleton"/*.c
}

ages="$(for r in $published; do printf '%s ' "${r##*/}"; done)today future"
for age in $ages; do
	check "a host builds against $age" host "$age"
	check "a backend builds against $age" backend "$age"
done
for h in $ages; do
	for b in $ages; do
		check "host of $h, backend of $b" "$tmp/host-$h" "$tmp/skeleton-$b.so"
	done
done

# The host itself: backends that get it wrong are caught. mutant NAME AGE SED: the skeleton, altered.
mutant() {
	local name=$1 age=$2
	mkdir "$tmp/$name" && cp "$skeleton"/*.[ch] "$tmp/$name" || return 2
	sed -i "$3" "$tmp/$name/engine.c"
	! cmp -s "$tmp/$name/engine.c" "$skeleton/engine.c" || { echo 'sed found nothing'; return 2; }
	(skeleton=$tmp/$name && backend "$age") && mv "$tmp/skeleton-$age.so" "$tmp/$name.so" || return 2
	"$tmp/host-today" "$tmp/$name.so"
}
check 'caught: an unknown tail is ignored' refuse mutant tail today 's/if (bytes\[i\])/if (0 \&\& bytes[i])/'
check 'caught: a result longer than the host has room' refuse mutant long future \
	's/memcpy(limits, &now, SIZE_1(.*));/memcpy(limits, \&now, sizeof(now));/'
check 'caught: a longer struct than its own is wanted' refuse mutant short future \
	's/take_args(&args, SIZE_1(escrow_open_args, engine_name)/take_args(\&args, sizeof(args)/'

# The backends of the tree, under hosts of every age.
for so in "${top_builddir:-$top_srcdir/build}"/backends/.libs/mock.so; do
	[ -e "$so" ] && [ -z "${SANITIZERS:-}" ] || continue
	for h in $ages; do check "host of $h, ${so##*/}" "$tmp/host-$h" "$so"; done
done
plan
