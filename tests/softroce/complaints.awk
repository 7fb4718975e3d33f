# usage: awk -f complaints.awk known-warnings CONSOLE
# What a guest's kernel said that it should not have: prints each complaint with what follows it, up to 60 lines, and nothing
# when the kernel was content. A trace whose first line matches an expression of known-warnings is passed over, up to its end
# mark or to the next complaint.
BEGIN {
	bad = "WARNING:|BUG:|Oops|KASAN|UBSAN|general protection fault|Kernel panic|Call Trace:|blocked for more than" \
		"|detected stall|self-detected|soft lockup|hard LOCKUP|refcount_t:|use-after-free"
	heads = "WARNING:|BUG:|Oops|KASAN|UBSAN|Kernel panic|blocked for more than|soft lockup|hard LOCKUP"
}

FILENAME == ARGV[1] {
	if ($0 !~ /^[ \t]*(#|$)/)
		allowed[$0] = 1
	next
}

{ sub(/\r$/, "") }

skipping && /---\[ end trace/ {
	skipping = 0
	next
}

skipping && $0 !~ heads { next }

$0 ~ bad {
	skipping = 0
	for (expression in allowed)
		if ($0 ~ expression) {
			skipping = 1
			next
		}
	shown = 60
}

shown > 0 {
	print
	shown--
}
