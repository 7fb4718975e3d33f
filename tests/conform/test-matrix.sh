#!/bin/bash
# The kill matrix looks twice at what fails and should not: a busy machine is no fault, and a fault stays. By a child that is
# made up: it fails, or hangs, as it is told.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export ESCROW_CONFORM_CHILD=$dir/child
n=0

# The aim is caught in the mutant; of the others the matrix takes a sample.
cat >"$dir/child" <<'END'
#!/bin/bash
dir=$(dirname "$0")
if [ "$1" = --list ]; then
	printf 'ESC-AIM-001\tcore\tV1\t\tthe aim\n'
	for c in {A..P}; do printf 'ESC-%s-OTHER\tcore\tV2\t\tanother\n' "$c$c"; done
	exit
fi
while [ $# -gt 1 ]; do
	case $1 in
	--fd) fd=$2 ;;
	--case) id=$2 ;;
	--limit) limit=$2 ;;
	esac
	shift 2
done
object=${1##*/} look=first
mkdir "$dir/seen/$object-$id" 2>/dev/null || look=second
echo "$object $id $look $limit" >>"$dir/calls"
verdict=PASS
[ "$object$id" != mutant.soESC-AIM-001 ] || verdict=FAIL
# shellcheck disable=SC1091
. "$dir/plan"
[ $verdict != hang ] || exec sleep 600
printf 'V\t%s\t%s\tas told\n' "$verdict" "${clause:-V1}" >&"$fd"
END
chmod +x "$dir/child"
printf 'V1\tMUST\ttext\tESC-AIM-001\tmutant\tno\t-\n' >"$dir/clauses"
echo 'no object' | tee "$dir/mutant.so" >"$dir/original.so"

# ok NAME COMMAND...
ok() {
	local name=$1
	shift
	n=$((n + 1))
	if "$@"; then echo "ok $n - $name"; else
		echo "not ok $n - $name"
		sed 's/^/# /' "$dir/out"
	fi
}
said() { grep -qE -- "$1" "${2:-$dir/out}"; }
not_said() { ! said "$@"; }

# matrix LINE...: with these lines of shell for the child, and the options in $options
options=()
matrix() {
	printf '%s\n' "$@" >"$dir/plan"
	rm -rf "$dir/seen" "$dir/calls"
	mkdir "$dir/seen"
	"$top_builddir/tools/escrow" conform --profile core --timeout 1000 --kill-matrix "$dir" --clauses "$dir/clauses" \
		"${options[@]}" "$dir/original.so" >"$dir/out" 2>&1
}

matrix ''
ok 'the mutant is caught' said '^ok 1 - V1 mutant'
ok 'a case is told how long it may take' said '^original.so ESC-AIM-001 first 1000$' "$dir/calls"
ok 'others are tried on it' said '^mutant.so ESC-..-OTHER first' "$dir/calls"

# shellcheck disable=SC2016
matrix '[ $object-$id-$look != original.so-ESC-AIM-001-first ] || verdict=hang'
ok 'an original that hung is tried again, with ten times the time' said '^original.so ESC-AIM-001 second 10000$' "$dir/calls"
ok 'it passes then, and the mutant is caught' said '^ok 1 - V1 mutant'
ok 'nothing is told of it' not_said 'does not pass ESC-'

# shellcheck disable=SC2016
matrix '[ $object-$id != original.so-ESC-AIM-001 ] || verdict=FAIL'
ok 'an original that fails again does not pass' said 'the original does not pass ESC-AIM-001: FAIL as told'
ok 'and its case shows nothing' said '^not ok 1 - V1 mutant'

# shellcheck disable=SC2016
matrix 'case $object-$id-$look in mutant.so-ESC-*-OTHER-first) verdict=FAIL clause=V2 ;; esac'
ok 'a mutant that failed elsewhere is tried again, with ten times the time' said '^mutant.so ESC-..-OTHER second 10000$' "$dir/calls"
ok 'and is caught by the right case only' said '^ok 1 - V1 mutant'

# shellcheck disable=SC2016
matrix 'case $object-$id in mutant.so-ESC-*-OTHER) verdict=FAIL clause=V2 ;; esac'
ok 'one that fails there again is off the diagonal' said 'off the diagonal: ESC-..-OTHER FAIL V2'
ok 'and not caught as it should be' said '^not ok 1 - V1 mutant'

printf 'V2\tMUST\ttext\tESC-AIM-001\tmissing\tno\t-\n' >>"$dir/clauses"
options=(--share 1/2)
matrix ''
ok 'of two shares the first has the first mutant' said '^ok 1 - V1 mutant'
ok 'and not the second' not_said missing
options=(--share 2/2)
matrix ''
ok 'which is in the second' said '^not ok 1 - V2 missing'
for wrong in 0/2 3/2 1 x/2 1/0 1/1025; do
	options=(--share $wrong)
	matrix ''
	ok "share $wrong is refused" said "--share $wrong: allowed is K/N"
done
echo "1..$n"
