#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# make installcheck: the gates once more, on what was installed. The host is compiled here, by gcc and by clang, and knows of
# ours only the installed header; the backend is the installed one; the observer and softverbs are the tests'. Prints TAP.
#
# With INSTALLED_HOSTS=DIR the hosts are only compiled, into it, and DIR/run is written, which runs this again on kernel verbs:
# in the guest of ./dev softroce, where compiling would take too long. INSTALLED_CASES: patterns of COMPILER:FAILURE/READING.
set -u
: "${top_srcdir:?}" "${top_builddir:?}" "${prefix:?}" "${libdir:?}" "${backenddir:?}" "${DESTDIR=}"
observer=$top_builddir/tests/gates/.libs/libobserver.so
softverbs=$top_builddir/tests/softverbs/.libs/libsoftverbs.so
skip() { echo "1..0 # SKIP $1"; exit 0; }
[ -f "$backenddir/rdma.so" ] || skip 'built without the RDMA backend'
[ -z "${SANITIZERS:-}" ] || skip 'a sanitizer must be the first library of a program'
[ -f "$softverbs" ] || skip 'built without softverbs'
[ -f "$observer" ] || make -C "$top_builddir" -s tests/gates/libobserver.la >&2 || skip 'no observer'
device=softverbs0 preload=$observer:$softverbs hosts=${INSTALLED_HOSTS:-} only_compile=$hosts
read -ra cases <<<"${INSTALLED_CASES:-*}"
if [ -n "${INSTALLED_COMPILED:-}" ]; then
	hosts=$INSTALLED_COMPILED only_compile='' device=${ESCROW_TEST_RAILS%%:*} preload=$observer
	[ -n "$device" ] || skip 'no device: ESCROW_TEST_RAILS names none'
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0 failed=0

# With DESTDIR the installed escrow.pc names folders that are not there yet.
mkdir "$tmp/pc" "$tmp/meet"
sed "s|^prefix=.*|prefix=$DESTDIR$prefix|" "$libdir/pkgconfig/escrow.pc" >"$tmp/pc/escrow.pc"
export PKG_CONFIG_PATH=$tmp/pc:${PKG_CONFIG_PATH:-}

# number FILE STATUS: the lines with their numbers; a host that broke off is a failure of its own.
number() {
	local line
	while read -r line; do
		n=$((n + 1))
		case $line in not*) failed=1 ;; esac
		echo "${line%% - *} $n - $cc: ${line#* - }"
	done < <(grep -E '^(not )?ok ' "$1")
	if [ "$2" -gt 1 ]; then
		n=$((n + 1)) failed=1
		echo "not ok $n - $cc: $gate/$reading: ended with status $2"
	fi
}

# wanted CASE: is it one of those that were asked for?
wanted() {
	local pattern
	# shellcheck disable=SC2053
	for pattern in "${cases[@]}"; do [[ $1 != $pattern ]] || return 0; done
	return 1
}

# compiled: the host of this compiler, as $host.
compiled() {
	host=${hosts:-$tmp}/host-$cc
	[ -z "${INSTALLED_COMPILED:-}" ] || return 0
	# shellcheck disable=SC2046
	$cc -std=gnu11 -Wall -Wextra -Werror -o "$host" "$top_srcdir/tests/gates/installed-host.c" \
		-iquote "$top_srcdir/tests/gates" $(pkg-config --cflags escrow) "$observer" -ldl >"$tmp/said" 2>&1
}

if [ -n "$only_compile" ]; then
	mkdir -p "$hosts"
	{
		echo '#!/bin/bash'
		for word in top_srcdir top_builddir prefix libdir backenddir DESTDIR; do printf 'export %s=%q\n' $word "${!word}"; done
		printf 'INSTALLED_COMPILED=%q exec bash %q\n' "$hosts" "$top_srcdir/tests/gates/test-installed.sh"
	} >"$hosts/run"
	chmod +x "$hosts/run"
fi

for cc in gcc clang; do
	command -v $cc >/dev/null || { n=$((n + 1)); echo "ok $n - $cc # SKIP not here"; continue; }
	compiled || {
		sed 's/^/# /' "$tmp/said"
		n=$((n + 1)) failed=1
		echo "not ok $n - $cc compiles a host against what was installed"
		continue
	}
	if [ -n "$only_compile" ]; then
		n=$((n + 1))
		echo "ok $n - $cc compiles a host against what was installed"
		continue
	fi
	for gate in destroy_qp destroy_channel destroy_cq dealloc_pd dereg_mr dealloc_mw; do
		for reading in strong weak; do
			wanted $cc:$gate/$reading || continue
			SOFTVERBS_DIR=$tmp/meet LD_PRELOAD=$preload timeout 600 \
				"$host" "$backenddir/rdma.so" "$device" $gate $reading >"$tmp/out"
			number "$tmp/out" $?
		done
	done
done
echo "1..$n"
exit $failed
