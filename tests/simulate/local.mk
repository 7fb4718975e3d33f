# The simulation (docs/simulate.md): the RDMA backend's own objects, linked with softverbs.
if BACKEND_RDMA
test_helpers += %D%/simulate
%C%_simulate_SOURCES  = %D%/act.c %D%/book.c %D%/charges.c %D%/device.c %D%/device.h %D%/judge.c %D%/lend.c \
                        %D%/message.c %D%/nature.c %D%/offers.c %D%/run.c %D%/run.h %D%/sim.h %D%/simulate.c %D%/transfer.c %D%/world.c
%C%_simulate_CPPFLAGS = $(AM_CPPFLAGS) $(GLIB_CFLAGS) $(JSON_CFLAGS) $(RDMA_CFLAGS)
%C%_simulate_LDADD    = backends/rdma/librdma_native.la backends/engine/libengine.la \
                        tests/softverbs/libsoftverbs.la $(GLIB_LIBS) $(JSON_LIBS)
test_scripts += %D%/test-simulate.sh
endif
# Without a rule make would take the script for a program to make of run.c.
%D%/run: ; @:
EXTRA_DIST += %D%/run %D%/seeds docs/simulate.md
