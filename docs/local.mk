# Manual pages are written in scdoc: man_scd += %D%/NAME.SECTION.scd
EXTRA_DIST += $(man_scd) %D%/status.md %D%/design.md %D%/softroce.md %D%/process-death.md %D%/gates.md %D%/hardware.md %D%/performance.md
SUFFIXES    = .scd
if HAVE_SCDOC
man_MANS    = $(man_scd:.scd=)
CLEANFILES += $(man_MANS)
.scd:
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(SCDOC) <$< >$@.tmp && mv $@.tmp $@
endif

man_scd += %D%/escrow.1.scd %D%/escrow-conform.1.scd %D%/libescrow.3.scd %D%/escrow-rdma.7.scd

# escrow_backend(3) is the header itself, put into scdoc.
man_scd += %D%/escrow_backend.3.scd
EXTRA_DIST += %D%/backend-page.awk
CLEANFILES += %D%/escrow_backend.3.scd
%D%/escrow_backend.3.scd: abi/escrow/backend.h %D%/backend-page.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(AWK) -f $(srcdir)/docs/backend-page.awk \
	    $(srcdir)/abi/escrow/backend.h >$@.tmp && mv $@.tmp $@

# escrow-abi(7) is the table of states and the table of clauses.
man_scd += %D%/escrow-abi.7.scd
EXTRA_DIST += %D%/abi-page.awk
CLEANFILES += %D%/escrow-abi.7.scd
%D%/escrow-abi.7.scd: abi/states.tsv abi/clauses.tsv %D%/abi-page.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(AWK) -f $(srcdir)/docs/abi-page.awk \
	    $(srcdir)/abi/states.tsv $(srcdir)/abi/clauses.tsv >$@.tmp && mv $@.tmp $@
