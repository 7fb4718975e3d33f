pkgconfigdir   = $(libdir)/pkgconfig
pkgconfig_DATA = %D%/escrow.pc
aclocaldir     = $(datadir)/aclocal
dist_aclocal_DATA = m4/escrow.m4

pkginclude_HEADERS += %D%/escrow/backend.h %D%/escrow/budget.h %D%/escrow/counters.h %D%/escrow/fault.h \
                      %D%/escrow/fence.h %D%/escrow/notify.h %D%/escrow/rails.h
EXTRA_DIST += %D%/clauses.tsv %D%/revision1.h %D%/states.tsv

# Published revisions (abi/freeze).
EXTRA_DIST += %D%/freeze %D%/r1/escrow.abi \
              %D%/r1/escrow/backend.h %D%/r1/escrow/counters.h %D%/r1/escrow/fault.h \
              %D%/r1/escrow/fence.h %D%/r1/escrow/notify.h
