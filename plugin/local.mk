# The host library, libescrow, and the program that probes a backend for it.
pkginclude_HEADERS += %D%/escrow.h

lib_LTLIBRARIES += %D%/libescrow.la
%C%_libescrow_la_SOURCES = \
	%D%/escrow.h %D%/host.h \
	%D%/args.c %D%/args.h %D%/config.c %D%/discover.c %D%/drain.c %D%/elf.c %D%/elf.h %D%/engine.c %D%/error.c %D%/error.h \
	%D%/event.c %D%/event.h %D%/file.c %D%/file.h %D%/guard.c %D%/here.c %D%/here.h \
	%D%/inside.c %D%/inside.h \
	%D%/lend.c %D%/lend.h %D%/look.c %D%/module.c %D%/module.h %D%/negotiate.c \
	%D%/negotiate.h %D%/peer.c %D%/poll.c %D%/probe.c %D%/probe.h %D%/quota.c %D%/rails.c \
	%D%/region.c %D%/services.c %D%/services.h %D%/source.c %D%/supervisor.c %D%/supervisor.h %D%/swap.c \
	%D%/swap.h %D%/swap-close.c %D%/swap-peers.c %D%/swap-steps.c %D%/table.c %D%/table.h \
	%D%/transfer.c %D%/transfer-tell.c %D%/withheld.c %D%/withheld.h
%C%_libescrow_la_CPPFLAGS = $(AM_CPPFLAGS) -DBACKENDDIR='"$(backenddir)"' \
                            -DPKGLIBEXECDIR='"$(pkglibexecdir)"'
%C%_libescrow_la_CFLAGS   = $(AM_CFLAGS) $(GLIB_CFLAGS)
%C%_libescrow_la_LDFLAGS  = $(AM_LDFLAGS) -version-info 0:0:0 -no-undefined \
                            -Wl,--version-script=$(top_srcdir)/%D%/libescrow.map
%C%_libescrow_la_LIBADD   = $(GLIB_LIBS)
EXTRA_%C%_libescrow_la_DEPENDENCIES = %D%/libescrow.map
EXTRA_DIST += %D%/libescrow.map

pkglibexec_PROGRAMS += %D%/escrow-probe
%C%_escrow_probe_SOURCES = %D%/probe-main.c %D%/probe.h
