# The stages of ./dev test (sourced by it). A stage is a line in stage_table and a function
# stage_NAME. The function works below $stage_dir, and its results are read from
#   *.trs   automake's, in the folder that the function names with: results_in DIR
#   *.tap   any file of TAP lines below $stage_dir
# A stage that fails, or that leaves no result at all, counts as one failure more than it reports.

stage_table=(
	"gcc        build with gcc, warnings are errors; make check"
	"asan       address and undefined-behaviour sanitizers; make check"
	"tsan       thread sanitizer; the threaded tests"
	"clang      build with clang, warnings are errors; the installed gates (FULL=1: the unit tests)"
	"valgrind   memcheck over the test programs that clang built"
	"dist       make distcheck and installcheck"
	"matrix     old and new: hosts and backends built against a generated future header"
	"mutants    the kill matrix: every mutant is caught, and by the right cases"
	"simulate   random workloads against a random adversary: 60 s of each core; FULL=1: 180 s, other seeds every day"
	"planted    faults planted into the backends are found: some a day, all with FULL=1"
	"lint       format, house rules, cppcheck (./dev lint also runs clang-tidy)"
	"gates      native teardown failures on softverbs: every pair of the matrix (FULL=1: all of it)"
	"softroce   real kernel verbs in a guest"
)

# Many tests wait for most of their time.
tests_at_once=$((${jobs:-1} * 2))

results_in() { printf '%s\n' "$1" >>"$stage_dir/results"; }

# tap_run FILE NAME CMD...: one TAP line for a command, for stages whose steps print no TAP.
tap_run() {
	local file=$stage_dir/$1.tap name=$2 rc=0
	shift 2
	"$@" || rc=$?
	if [ $rc = 0 ]; then echo "ok - $name"; else echo "not ok - $name (status $rc)"; fi >>"$file"
	return $rc
}

tap_skip() { echo "ok - $2 # SKIP $3" >>"$stage_dir/$1.tap"; }

stage_gcc() {
	results_in "$build"
	build_in "$build" --enable-werror --enable-tests=yes
	make -C "$build" -j"$tests_at_once" check
}

stage_asan() {
	results_in "$top/build-asan"
	build_in "$top/build-asan" --enable-werror --enable-tests=yes --enable-asan CFLAGS="-O1 -g1"
	make -C "$top/build-asan" -j"$tests_at_once" check
}

# gcc 12's thread sanitizer dies at start when the kernel spreads mappings over more bits than it
# knows (vm.mmap_rnd_bits > 28), hence without address randomisation where that can be had.
stage_tsan() {
	local fixed=()
	setarch -R true 2>/dev/null && fixed=(setarch -R)
	results_in "$top/build-tsan"
	build_in "$top/build-tsan" --enable-werror --enable-tests=yes --enable-tsan CFLAGS="-O1 -g1"
	"${fixed[@]}" make -C "$top/build-tsan" -j"$tests_at_once" check-threads
}

# The tests of what clang built are run once, under memcheck: valgrind 3.19 cannot read the DWARF 5 of clang 14.
build_clang() { build_in "$top/build-clang" --enable-werror --enable-tests=yes CC=clang CFLAGS="-O2 -g -gdwarf-4"; }

stage_clang() {
	results_in "$top/build-clang"
	build_clang
	[ -z "${FULL:-}" ] || make -C "$top/build-clang" -j"$tests_at_once" check-programs
	make -C "$top/build-clang" -s install DESTDIR="$stage_dir/inst"
	make -C "$top/build-clang" -s installcheck DESTDIR="$stage_dir/inst" \
		installcheck_scripts=tests/gates/test-installed.sh | tee "$stage_dir/installed.tap"
}

stage_valgrind() {
	results_in "$top/build-clang"
	build_clang
	make -C "$top/build-clang" -j"$tests_at_once" check-valgrind
}

installcheck_tap() {
	make -C "$build" -s installcheck DESTDIR="$stage_dir/inst" | tee "$stage_dir/installcheck.tap"
}

# distcheck has a make installcheck of its own, of what it installed into a prefix; the one here is of
# a staged install, as packages are made, and its results are counted.
stage_dist() {
	build_in "$build" --enable-werror --enable-tests=yes
	tap_run dist 'install into a stage' make -C "$build" -s install DESTDIR="$stage_dir/inst"
	tap_run dist 'installcheck of the stage' installcheck_tap
	tap_run dist distcheck make -C "$build" -s -j"$tests_at_once" check-tarball
}

# A host and a backend of the next revision, made by tests/abi/future-header, against those of today.
# make's -I order is ours: abi_include goes before everything.
stage_matrix() {
	local failed=0 next=$top/build-next today=$build/backends/.libs later=$top/build-next/backends/.libs
	build_in "$build" --enable-werror --enable-tests=yes
	[ -x "$build/tools/escrow" ] || { tap_skip matrix 'the version matrix' 'no escrow command yet'; return; }
	rm -rf "$next/abi-next"
	mkdir -p "$next"
	perl "$top/tests/abi/future-header" "$top/abi" "$next/abi-next"
	# A list of values for a struct that has grown is shorter than it: legal, and zero.
	configure_in "$next" --enable-werror --disable-tests \
		CFLAGS='-O2 -g -Wno-missing-field-initializers'
	tap_run matrix 'builds against a future header' \
		make -C "$next" -s -j"$jobs" all abi_include="$next/abi-next"
	conform_tap matrix-new-backend "$build" "$later/mock.so" || failed=1
	conform_tap matrix-new-host "$next" "$today/mock.so" || failed=1
	[ $failed = 0 ]
}

# conform_tap FILE TREE BACKEND.so: the suite of TREE on a backend.
conform_tap() {
	[ -e "$3" ] || { tap_skip "$1" "$1" "no ${3##*/} yet"; return; }
	ESCROW_CONFORM_CHILD=$2/tests/conform/escrow-conform-child \
		ESCROW_PROBE=$2/plugin/escrow-probe "$2/tools/escrow" conform --tap --timeout 60000 \
		--profile static,core,data -j "$jobs" "$3" | tee "$stage_dir/$1.tap"
}

# Prints TAP, a line for each mutant.
stage_mutants() {
	build_in "$build" --enable-werror --enable-tests=yes
	make -C "$build" -s -j"$jobs" mutants
	top_srcdir=$top top_builddir=$build bash "$top/backends/mock/mutants/kill-matrix.sh" |
		tee "$stage_dir/mutants.tap"
	[ "${PIPESTATUS[0]}" = 0 ]
}

# As many seeds as there is time for, on each core; with --full other ones every day. Without, who changes a word
# is not told of a fault that is older.
stage_simulate() {
	local i pids=() rc=0 seconds=60 base=1000000
	[ -z "${FULL:-}" ] || { seconds=180 base=$(($(date +%s) / 86400 * 1000000)); }
	build_in "$build" --enable-werror --enable-tests=yes
	make -C "$build" -s -j"$jobs" tests/simulate/simulate
	for ((i = 0; i < jobs; i++)); do
		tap_run "simulate-$i" "no rule is broken, core $i" "$build/tests/simulate/simulate" --runs 1000000 \
			--seconds $seconds --seed "$((base + i * 500000))" &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i" || rc=1; done
	return $rc
}

# Prints TAP, a line for each fault.
stage_planted() {
	build_in "$build" --enable-werror --enable-tests=yes
	make -C "$build" -s -j"$jobs" tests/simulate/simulate
	top_srcdir=$top top_builddir=$build bash "$top/tests/planted/run" ${FULL:+--all} | tee "$stage_dir/planted.tap"
	[ "${PIPESTATUS[0]}" = 0 ]
}

stage_lint() {
	configure_in "$build" --enable-werror --enable-tests=yes
	LINT_NO_TIDY=1 TAP_FILE=$stage_dir/lint.tap make -C "$build" -s lint
}

# in_guest NAME [OPTION...] -- CMD...: runs a command that prints TAP in the guest, see docs/softroce.md. Its limit is there
# for what hangs: a busy machine needs several times what a quiet one does.
in_guest() {
	local name=$1 tap=$stage_dir/$1.tap rc=0
	shift
	"$top/tests/softroce/run" -t 1800 "$@" | tee "$tap"
	rc=${PIPESTATUS[0]}
	# the exit status tells of the guest; a TAP program that broke off has printed no plan
	if [ "$rc" != 0 ]; then
		echo "not ok - $name: status $rc" | tee -a "$tap"
	elif ! grep -q '^1\.\.' "$tap"; then
		echo "not ok - $name: broke off" | tee -a "$tap"
	fi
}

stage_gates() {
	build_in "$build" --enable-werror --enable-tests=yes
	top_builddir=$build "$top/tests/gates/run" ${FULL:+--full} --out "$stage_dir/runs" | tee "$stage_dir/gates.tap"
	[ "${PIPESTATUS[0]}" = 0 ]
}

# piece NAME [OPTION...] -- CMD...: in_guest, unless it passed before on this commit: a run of ./dev test --full that
# was broken off goes on where it was.
piece() {
	kept_or in_guest "$@"
}

# two_nodes NAME [VARIABLE=VALUE...]: tests/softroce/test-two-nodes.sh, which says what the variables are.
two_nodes() {
	local name=$1
	shift
	env top_builddir="$build" "$@" "$top/tests/softroce/test-two-nodes.sh" | tee "$stage_dir/$name.tap"
	grep -q '^1\.\.' "$stage_dir/$name.tap" || echo "not ok - $name: broke off" | tee -a "$stage_dir/$name.tap"
}

# kept_or FUNCTION NAME ARGUMENT...: what NAME gave when it passed on this commit, else the function's run of it.
kept_or() {
	local run=$1
	shift
	local kept
	kept=$build/pieces/$(git -C "$top" rev-parse HEAD)
	git -C "$top" diff --quiet HEAD || rm -rf "$kept"
	mkdir -p "$kept"
	if [ -e "$kept/$1.tap" ]; then
		cp "$kept/$1.tap" "$stage_dir/$1.tap"
		return
	fi
	"$run" "$@"
	grep -q '^not ok' "$stage_dir/$1.tap" || cp "$stage_dir/$1.tap" "$kept/$1.tap"
}

# 500 deaths, and half an hour with the start of the guest.
kills_and_soak() {
	local first
	for first in 0 100 200 300 400; do
		piece kill-$first -t 3600 -- env ESCROW_TEST_KILLS=100 ESCROW_TEST_FIRST=$first \
			"$build/tests/unit/test-rdma-kill"
		kept_or two_nodes kill-far-$first ESCROW_TEST_PARTS=kills ESCROW_TEST_KILLS=100 \
			ESCROW_TEST_FIRST=$first ESCROW_TEST_LIMIT=3600
	done
	piece soak -t 3600 -- env SOAK_SECONDS=1680 "$build/tests/unit/test-rdma-soak"
}

# installed_hosts BUILD DIR: what BUILD installs, in DIR/inst, and hosts of it for the guest, in DIR/hosts (run is there).
installed_hosts() {
	make -C "$1" -s install DESTDIR="$2/inst" >&2
	INSTALLED_HOSTS=$2/hosts make -C "$1" -s installcheck DESTDIR="$2/inst" \
		installcheck_scripts=tests/gates/test-installed.sh | tee "$stage_dir/hosts-${1##*/}.tap"
}

# The gates on what was installed, all of them, of a tree built by gcc and of one built by clang.
installed_in_guest() {
	piece installed-gcc -- "$stage_dir/gcc/hosts/run"
	build_clang
	installed_hosts "$top/build-clang" "$stage_dir/clang"
	piece installed-clang -- "$stage_dir/clang/hosts/run"
}

gates_in_guest() {
	local call part run=("$top/tests/gates/run" --on softroce)
	export top_builddir=$build
	if [ -z "${FULL:-}" ]; then
		in_guest gates -- "${run[@]}" --case 'destroy_*/read/requester/rail0/events/lanes1/strong' --case 'd*/granted'
		return
	fi
	piece gates-parts -t 3600 -- "${run[@]}" --case 'd*/idle' --case 'd*/in-use' --case 'd*/granted'
	for call in destroy_qp destroy_channel destroy_cq dealloc_pd; do
		for part in read write; do
			piece gates-$call-$part -t 3600 -- "${run[@]}" --case "$call/$part/*"
		done
	done
}

# alike PROFILES: the suite on the mock, of which a host is told the same as of the RDMA backend in the guest.
alike() {
	ESCROW_CONFORM_CHILD=$build/tests/conform/escrow-conform-child ESCROW_PROBE=$build/plugin/escrow-probe \
		"$build/tools/escrow" conform --tap -t 60000 --profile "$1" "$build/backends/.libs/mock.so" >"$stage_dir/mock.out" || true
	"$top/tests/conform/compare" guest "$top/tests/conform/differences" "$stage_dir/mock.out" "$stage_dir/conform.tap" |
		tee "$stage_dir/alike.tap"
}

stage_softroce() {
	local each=$top/tests/softroce/each
	need softroce
	# of each test in the guest, where all goes at a fraction of the speed
	export CK_TIMEOUT_MULTIPLIER=4
	build_in "$build" --enable-werror --enable-tests=yes
	make -C "$build" -j"$jobs" tests/softroce/facts tests/softroce/facts-failure \
		tests/softverbs/real-{verbs,windows,lists,cm,peers} tests/softverbs/real-catalogue-{requester,owner,device,wire} \
		tests/unit/test-rdma-{native,hostile,rails,returns,renew,limits,cgroup,misuse,path,address,meet,kill,death,soak} tests/gates/gate tests/gates/libobserver.la \
		tests/hardware/side tools/escrow
	"$top/tests/softroce/test-guest.sh" | tee "$stage_dir/guest.tap"
	grep -q '^1\.\.' "$stage_dir/guest.tap" # the plan comes last: without it the script broke off
	in_guest verbs -- "$each" "$top/tests/softverbs/differ" \
		"$build/tests/softroce/facts" "$build/tests/softroce/facts-failure" \
		"$build/tests/softverbs/real-catalogue-requester" "$build/tests/softverbs/real-catalogue-owner" \
		"$build/tests/softverbs/real-catalogue-device"
	in_guest wire -w hub -- "$each" "$build/tests/softverbs/real-catalogue-wire" "$build/tests/unit/test-rdma-path"
	installed_hosts "$build" "$stage_dir/gcc"
	# Rails last: it takes a link down, and with that the kernel drops its IPv6 addresses.
	in_guest backend -- env ESCROW_BACKEND_PATH="$build/backends/.libs" \
		INSTALLED_CASES="gcc:destroy_qp/strong clang:dealloc_mw/weak" "$each" \
		"$build/tests/unit/test-rdma-native" "$build/tests/unit/test-rdma-hostile" "$build/tests/unit/test-rdma-path" "$build/tests/unit/test-rdma-meet" \
		"$build/tests/unit/test-rdma-returns" "$build/tests/unit/test-rdma-renew" "$build/tests/unit/test-rdma-address" \
		"$build/tests/unit/test-rdma-limits" "$build/tests/unit/test-rdma-cgroup" \
		"$build/tests/unit/test-rdma-misuse" "$stage_dir/gcc/hosts/run" "$build/tests/unit/test-rdma-rails"
	in_guest death -- env top_builddir="$build" ESCROW_TEST_SEED=20261129 ESCROW_TEST_KILLS=10 SOAK_SECONDS=60 "$each" \
		"$build/tests/unit/test-rdma-death" "$build/tests/unit/test-rdma-kill" "$build/tests/unit/test-rdma-soak"
	[ -z "${FULL:-}" ] || kills_and_soak
	[ -z "${FULL:-}" ] || installed_in_guest
	gates_in_guest
	two_nodes two-nodes
	[ -z "${FULL:-}" ] || two_nodes two-nodes-gate ESCROW_TEST_PARTS=gate
	in_guest conform -t 3600 -- env ESCROW_CONFORM_CHILD="$build/tests/conform/escrow-conform-child" \
		ESCROW_PROBE="$build/plugin/escrow-probe" "$build/tools/escrow" conform --tap -j 2 -t 90000 \
		--with "$build/backends/.libs/mock.so" --waivers "$top/tests/softroce/conform-waivers" --profile "static,core,data,swap,thread${FULL:+,fault}" "$build/backends/.libs/rdma.so"
	alike "static,core,data,swap,thread${FULL:+,fault}"
}

# ---- the machinery ---------------------------------------------------------------------------------
# stage_count: "PASSED FAILED SKIPPED" of the stage that just ran.
stage_count() {
	local dir
	{
		while read -r dir; do
			find "$dir" -name '*.trs' -newer "$stage_dir/start" -exec cat {} +
		done < <(sort -u "$stage_dir/results" 2>/dev/null)
		find "$stage_dir" -name '*.tap' -not -path "$stage_dir/build/*" -exec sed -nE \
			-e 's/^ok\b.*# *(SKIP|TODO).*/:test-result: SKIP/Ip;t' \
			-e 's/^1\.\.0 *# *SKIP.*/:test-result: SKIP/Ip;t' \
			-e 's/^ok\b.*/:test-result: PASS/p;t' \
			-e 's/^not ok\b.*# *TODO.*/:test-result: SKIP/Ip;t' \
			-e 's/^(not ok|Bail out!).*/:test-result: FAIL/p' {} +
	} | awk '/^:test-result: PASS/ { p++ }
		/^:test-result: (FAIL|ERROR|XPASS)/ { f++ }
		/^:test-result: (SKIP|XFAIL)/ { s++ }
		END { print p + 0, f + 0, s + 0 }'
}

# stage_failures: which tests failed, with what they said, and the end of the log.
stage_failures() {
	local dir t
	while read -r dir; do
		while read -r t; do
			say "--- ${t%.trs}.log"
			grep -vE '^(ok|PASS)' "${t%.trs}.log" | tail -n 40 | cut -c1-400 >&2
		done < <(find "$dir" -name '*.trs' -newer "$stage_dir/start" -exec \
			grep -lE '^:test-result: (FAIL|ERROR|XPASS)' {} +)
	done < <(sort -u "$stage_dir/results" 2>/dev/null)
	grep -h -A 6 '^not ok' $(find "$stage_dir" -name '*.tap' -not -path "$stage_dir/build/*") /dev/null >&2 || true
	say "--- the end of $stage_dir/log"
	tail -n 50 "$stage_dir/log" | cut -c1-400 >&2
}

# stages_say_again: what failed, once more at the end: of a long run people keep the end.
stages_say_again() {
	local file
	for file in "$build"/test/*.failures; do
		[ -e "$file" ] || continue
		say "== failed in $(basename "$file" .failures):"
		grep -A 4 -E '^(not ok|Bail out!|--- )' "$file" | grep -v '# TODO' | head -n 40 >&2 || true
	done
}

# stage_run NAME WHAT: runs one stage in a shell of its own and adds to the sums.
stage_run() {
	local name=$1 what=$2 start=$SECONDS rc=0 counts
	stage_dir=$build/test/$name
	rm -rf "$stage_dir"
	mkdir -p "$stage_dir"
	# A file system's clock ticks coarsely: what is written within a tick of this is not newer.
	: >"$stage_dir/start"
	sleep 0.05
	say "== $name: $what"
	# set -e does not hold in a function called with ||; in a shell of its own it does.
	set +e
	(set -e -o pipefail && "stage_$name") >"$stage_dir/log" 2>&1 </dev/null
	rc=$?
	set -e
	read -r p f s < <(stage_count)
	if [ $f = 0 ]; then
		if [ $rc != 0 ]; then
			say "   the stage broke (status $rc)"
			f=1
		elif [ $((p + s)) = 0 ]; then
			say "   the stage left no result"
			f=1
		fi
	fi
	[ $f = 0 ] || { stage_failures 2>&1 | tee "$build/test/$name.failures" >&2; }
	say "   $name: $p passed, $f failed, $s skipped, $((SECONDS - start)) s"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

stages_main() {
	local line name what wanted known=" " a
	# The stages, and what make runs for them, look at FULL.
	if [ "${1:-}" = --full ]; then
		export FULL=1
		shift
	fi
	wanted=" $* "
	passed=0 failed=0 skipped=0
	for line in "${stage_table[@]}"; do known+="${line%% *} "; done
	if [ "${1:-}" = -l ]; then printf '%s\n' "${stage_table[@]}"; return; fi
	for a in "$@"; do
		case $known in *" $a "*) ;; *) die "no such stage: $a (known:$known)" ;; esac
	done
	rm -f "$build"/test/*.failures
	for line in "${stage_table[@]}"; do
		read -r name what <<<"$line"
		case $wanted in "  " | *" $name "*) stage_run "$name" "$what" ;; esac
	done
	stages_say_again
	echo "$passed passed, $failed failed, $skipped skipped"
	[ $failed = 0 ]
}
