#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The Promela models, each with the rule that the code follows (no error may be found) and with rules
# that are known to be wrong (the error must be found, and be the right one). Prints TAP; see
# docs/models.md. With MODELS=FILE the sizes go there, one line a run. MODELS_ONLY=WORD runs those lines
# of the table that contain WORD. Lines that begin with + take long: with FULL=1 only.
set -u
top_srcdir=${top_srcdir:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
models=$top_srcdir/tests/models
# Not $CC: the verifier is no part of the product, and is not what a sanitizer or clang is to judge.
for tool in spin gcc; do
	command -v "$tool" >/dev/null || { echo "1..0 # SKIP no $tool here"; exit 0; }
done
# They have nothing of the product in them that a sanitizer could look at.
[ -z "${SANITIZERS:-}" ] || { echo "1..0 # SKIP the same in a build without sanitizers"; exit 0; }
# Compiling took longer than searching: of the largest model gcc takes 4 s, 46 s with its optimiser, which saves 12 of 26;
# tcc takes 0.1 s, and what it makes a third longer to search. The long lines are worth all that can be had.
if [ -n "${FULL:-}" ]; then compiler="gcc -O1 -DCOLLAPSE"
elif command -v tcc >/dev/null; then compiler=tcc
else compiler="gcc -O0"; fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# model | what is found ("none", "I2": invariant 2 broken, "reached", "L1": the property broken) |
# flags | what it shows
table() {
	grep -v '^#' "$models/table" | sed "${FULL:+s/^+//;} /^+/d" | grep '|' | grep -F -e "${MODELS_ONLY:-|}"
}

# verify MODEL FLAGS LTL: prints what pan found, and leaves its output in $dir/out.
verify() {
	local model=$1 flags=$2 ltl=$3 cc=(-DSAFETY) run=()
	if [ -n "$ltl" ]; then
		cc=(-DNFAIR=4)
		run=(-a -f -N "$ltl")
	fi
	rm -f pan.* pan
	# shellcheck disable=SC2086
	nice spin -a $flags "$models/$model.pml" >out 2>&1 || { echo "spin failed"; return; }
	# shellcheck disable=SC2086
	nice $compiler -w -DMEMLIM=1800 -DVECTORSZ=2048 "${cc[@]}" -o pan pan.c >out 2>&1 ||
		{ echo "${compiler%% *} failed"; return; }
	nice timeout 900 ./pan -m1000000 -w22 "${run[@]}" >out 2>&1
	judge "$ltl"
}

# The last line of pan that counts. An incomplete search is never "none".
judge() {
	local ltl=$1 n
	if grep -qE 'max search depth too small|out of memory|Memory limit|aborted|Search not completed' out &&
		grep -q 'errors: 0' out; then
		echo "search not completed"
	elif n=$(grep -oE 'assertion violated.*\(0\*[0-9]+\)' out | grep -oE '[0-9]+\)$'); then
		n=${n%)}
		if [ "$n" = 1000 ]; then echo reached; else echo "I$n"; fi
	elif grep -q '^pan:1: acceptance cycle' out; then
		echo "$ltl"
	elif grep -q '^pan:1: invalid end state' out; then
		echo "deadlock"
	elif grep -qE 'errors: 0$' out; then
		echo none
	else
		echo "something else"
	fi
}

states() { awk '/states, stored/ { print $1; exit }' out; }

mapfile -t lines < <(table)
echo "1..${#lines[@]}"
n=0 bad=0
for line in "${lines[@]}"; do
	IFS='|' read -r model want flags what <<<"$line"
	read -r model <<<"$model"
	read -r want <<<"$want"
	read -r flags <<<"$flags"
	what=${what# }
	ltl=
	case $flags in *ltl=*) ltl=${flags##*ltl=} flags=${flags%ltl=*} ;; esac
	n=$((n + 1))
	got=$(verify "$model" "$flags" "$ltl")
	[ -z "${MODELS:-}" ] || echo "$model|$flags $ltl|$got|$(states)|$what" >>"$MODELS"
	if [ "$got" = "$want" ]; then
		echo "ok $n - $model: $what: $got ($(states) states)"
	else
		bad=1
		tail -n 30 out | sed 's/^/# /'
		echo "not ok $n - $model: $what: expected $want, found $got"
	fi
done
exit $bad
