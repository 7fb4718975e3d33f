# The escrow command. A new sub-command: its files here, its line in escrow.c.
bin_PROGRAMS += %D%/escrow
%C%_escrow_SOURCES = %D%/escrow.c %D%/tool.h \
	%D%/bench-base.c %D%/bench-json.c %D%/bench-load.c %D%/bench-load.h %D%/bench-options.c %D%/bench-plot.c %D%/bench-raw.c %D%/bench-report.c \
	%D%/bench-requester.c %D%/bench-source.c %D%/bench-stat.c %D%/bench-sweep.c %D%/bench.c %D%/bench.h \
	%D%/demo-bytes.c %D%/demo-channel.c %D%/demo-tcp.c %D%/demo-device.c %D%/demo-end.c %D%/demo-requester.c %D%/demo-source.c %D%/demo-wait.c %D%/demo.c \
	%D%/demo.h %D%/ledger-serve.c %D%/ledger-text.c %D%/ledger-view.c %D%/ledger-view.h \
	%D%/ledger.c %D%/hint.c %D%/info.c %D%/info.h %D%/info-rails.c %D%/json.c %D%/json.h %D%/list.c %D%/number.c %D%/options.c %D%/output.c %D%/supervise.c %D%/supervise-contexts.c %D%/supervise.h %D%/supervise-file.c \
	%D%/supervise-serve.c %D%/supervise-tree.c %D%/swap-ends.c %D%/swap-ends.h %D%/swap.c %D%/names.c %D%/names.h \
	%D%/conform.c %D%/conform.h %D%/conform-cases.c %D%/conform-report.c %D%/conform-run.c \
	%D%/conform-matrix.c %D%/conform-static.c %D%/conform-waiver.c
%C%_escrow_CPPFLAGS = $(AM_CPPFLAGS) $(GLIB_CFLAGS) $(JSON_CFLAGS) \
	-DPKGLIBEXECDIR='"$(pkglibexecdir)"' -DPKGLIBDIR='"$(pkglibdir)"' -DBACKENDDIR='"$(backenddir)"'
%C%_escrow_LDADD = plugin/libescrow.la $(GLIB_LIBS) $(JSON_LIBS)
