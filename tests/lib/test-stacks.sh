#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What is said of a test that hangs names the place. Prints TAP.
echo "1..1"
name="a stack names the function that waits"
if ! command -v eu-stack >/dev/null && ! command -v gdb >/dev/null; then
	echo "ok 1 - $name # SKIP neither eu-stack nor gdb"
	exit
fi
sleep 1000 &
pid=$!
# It is there long after its exec. Where the kernel does not say where it waits, a minute must do.
until grep -q nanosleep "/proc/$pid/wchan" || [ $SECONDS -gt 60 ]; do
	kill -0 $pid || break
	sleep 0.05
done
out=$(sh "$top_srcdir/tests/lib/stacks" $pid)
kill $pid
case $out in
*nanosleep*) echo "ok 1 - $name" ;;
*) printf '%s\n' "$out" | sed 's/^/# /'; echo "not ok 1 - $name" ;;
esac
