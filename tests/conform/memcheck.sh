#!/bin/bash
# Part of make check-valgrind: the first case of each family on the mock, the child under memcheck. All
# would take minutes, and ASan sees all. MEMCHECK: valgrind and its options. Prints TAP.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/child" <<END
#!/bin/bash
exec ${MEMCHECK:?} '$top_builddir/tests/conform/escrow-conform-child' "\$@"
END
chmod +x "$dir/child"
export ESCROW_CONFORM_CHILD=$top_builddir/tests/conform/escrow-conform-child
# Not those that measure time, nor those of threads, which memcheck lets run one at a time; nor two processes, which a child starts from /proc/self/exe: valgrind.
mapfile -t cases < <("$top_builddir/tools/escrow" conform --list | cut -f1 | grep -e '-001$' | grep -vE 'STATIC|PERF|PROC|THREAD')
[ ${#cases[@]} -gt 15 ] || { echo "Bail out! only ${#cases[@]} cases are listed"; exit 1; }
ESCROW_CONFORM_CHILD=$dir/child "$top_builddir/tools/escrow" conform --tap --timeout 600000 \
	-j 2 "${cases[@]/#/--case=}" mock
