# SPDX-License-Identifier: BSD-2-Clause
# abi/escrow/backend.h -> escrow_backend(3) in scdoc: the header is the only source, so that page and
# header cannot disagree. What stands before a slot in struct escrow_ops is its section; the comment
# at the top is the description; statuses, capabilities and events become lists.
function esc(s) { gsub(/\\/, "\\\\", s); gsub(/[_*[]/, "\\\\&", s); return s }
function plain(s) {            # one line of a comment, without its frame
	sub(/^[ \t]*\/?\*+\/?[ \t]?/, "", s); sub(/[ \t]*\*\/[ \t]*$/, "", s); return s
}
function heading(s) { print "\n# " toupper(s) "\n" }
# The top comment: "THREADS.  Every slot ..." starts a headed paragraph, indented lines are a table.
function literal(on) { if (on != in_literal) print on ? "\n```" : "```\n"; in_literal = on }
function top_line(s,    head) {
	if (s ~ /^  /) { literal(1); print s; return }
	literal(0)
	if (match(s, /^[A-Z]+\.  /)) { head = substr(s, 1, RLENGTH - 3); s = substr(s, RLENGTH + 1) }
	else if (s ~ /^[A-Z]+$/) { head = s; s = "" }
	if (head != "") print "\n*" head "*\n"
	print esc(s)
}
BEGIN {
	print "escrow_backend(3) \"Escrow\" \"Escrow backend ABI\""
	print "\n# NAME\n\nescrow_backend - what a backend of a transfer engine provides, and what a host may rely on"
	print "\n# SYNOPSIS\n\n```\n#include <escrow/backend.h>\n\nconst struct escrow_backend *escrow_backend_entry_1(const struct escrow_hello *hello,"
	print "                                                    struct escrow_error *error);\n```"
	heading("description")
}
# ---- the top comment ----
FNR == 2 && /^\/\*$/ { in_top = 1; next }
in_top && /^ \*\// { literal(0); in_top = 0; next }
in_top { top_line(plain($0)); next }
# ---- lists of constants ----
function constants(title, prefix) { wanted[prefix] = title; order[++norder] = prefix }
/^#define ESCROW_(E_|OK|IN_PROGRESS|EVENTS_PENDING|CAP_|EV_|EVF_|CHARGE_|STATE_|RECEIPT_|STEP_|WEAK_|OWNER_|LOG_|CUSTODY_|EFFECT_|MEMORY_|RESIDENCY_|CLOSE_|MAY_|READ|WRITE|INVITE_|PEER_)/ {
	name = $2; note = ""
	if (match($0, /\/\*.*/)) note = plain(substr($0, RSTART))
	g = name; sub(/^ESCROW_/, "", g)
	if (g ~ /^(OK|IN_PROGRESS|EVENTS_PENDING|E_)/) g = "statuses"; else if (g ~ /^EVF?_/) g = "events"
	else if (g ~ /^CAP_/) g = "capabilities"; else if (g ~ /^STATE_/) g = "states of an engine"
	else if (g ~ /^(RECEIPT|STEP|WEAK|OWNER|CHARGE)_/) g = "the ledger"; else g = "other constants"
	open_comment = $0 ~ /\/\*/ && $0 !~ /\*\//
	n = ++items[g]; item[g, n] = name; text[g, n] = note; last_g = g; last_n = n; next
}
open_comment { t = plain($0); text[last_g, last_n] = text[last_g, last_n] " " t; if ($0 ~ /\*\//) open_comment = 0; next }
# ---- the slots ----
/^struct escrow_ops \{/ { in_ops = 1; next }
in_ops && /^\};/ { in_ops = 0; next }
in_ops && /^\t\/\*/ { comment = ""; in_comment = 1; rest = plain($0); if (rest != "") comment = rest "\n"; if ($0 ~ /\*\//) in_comment = 0; next }
in_ops && in_comment { if ($0 ~ /\*\//) { l = plain($0); if (l != "" && l != "/") comment = comment l "\n"; in_comment = 0 } else comment = comment plain($0) "\n"; next }
in_ops && /^\t(void|escrow_status|int32_t|const void)/ { proto = ""; in_proto = 1 }
in_ops && in_proto {
	line = $0; sub(/^\t/, "", line); proto = proto line "\n"
	if ($0 ~ /;/) {
		in_proto = 0; match(proto, /\(\*[a-z_]+\)/); slot = substr(proto, RSTART + 2, RLENGTH - 3)
		slots[++nslots] = slot; slot_proto[slot] = proto; slot_text[slot] = comment; comment = ""
	}
	next
}
END {
	heading("slots")
	print "Each slot carries its thread tag and its blocking class, then what it does, its events and its errors."
	for (i = 1; i <= nslots; i++) {
		print "\n## " slots[i] "\n\n```\n" slot_proto[slots[i]] "```\n"
		print esc(slot_text[slots[i]])
	}
	ng = split("statuses|capabilities|states of an engine|events|the ledger|other constants", gs, "|")
	for (k = 1; k <= ng; k++) {
		g = gs[k]; heading(g)
		for (n = 1; n <= items[g]; n++) {
			print "*" esc(item[g, n]) "*"
			if (text[g, n] != "") print "\t" esc(text[g, n])
			print ""
		}
	}
	heading("see also")
	print "*escrow-abi*(7), *escrow-conform*(1), *libescrow*(3), *escrow*(1)"
}
