# The ledger's tests share a ledger with something in it.
check_LTLIBRARIES += %D%/libbed.la
%C%_libbed_la_SOURCES = %D%/bed.c %D%/bed.h
%C%_libbed_la_CFLAGS  = $(AM_CFLAGS) $(CHECK_CFLAGS)
ledger_test_ldadd = tests/unit/ledger/libbed.la backends/ledger/libledger.la $(test_ldadd)
