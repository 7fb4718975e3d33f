# The accounts every backend keeps. Linked into each backend; hidden there like all but its entry.
noinst_LTLIBRARIES += %D%/libledger.la
%C%_libledger_la_SOURCES = %D%/binds.h %D%/budget.c %D%/charge.c %D%/charge.h %D%/check.c %D%/connection.c %D%/event.c %D%/grant.c \
    %D%/handle.c %D%/hot.h %D%/lane.c %D%/lane.h %D%/ledger.c %D%/ledger.h %D%/ledger-int.h %D%/loan.c \
    %D%/lock.c %D%/lock.h %D%/log.c %D%/log.h %D%/op.c %D%/op.h %D%/owner.c %D%/quarantine.c %D%/receipt.c %D%/record.c %D%/rules.c \
    %D%/rules.h %D%/settle.c %D%/slots.h %D%/step.c %D%/window.c

