if BACKEND_RDMA
# The RDMA backend: the engine over RDMA devices. The device side is a library of its own, for its test.
noinst_LTLIBRARIES += %D%/librdma_native.la
%C%_librdma_native_la_SOURCES = %D%/cgroup.c %D%/cm.c %D%/connection.c %D%/context.c %D%/error.c %D%/fault.c %D%/lane.c %D%/memlock.c \
                                %D%/native.c %D%/options.h %D%/provider.c %D%/rail.c %D%/rdma.h \
                                %D%/registration.c %D%/report.c %D%/settings.c %D%/topology.c %D%/transfer.c \
                                %D%/verbs.c %D%/verbs.h %D%/window.c
%C%_librdma_native_la_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_librdma_native_la_CFLAGS   = $(AM_CFLAGS) -fPIC

backend_LTLIBRARIES += backends/rdma.la
backends_rdma_la_SOURCES = %D%/entry.c
backends_rdma_la_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
backends_rdma_la_LDFLAGS = $(escrow_module_ldflags)
backends_rdma_la_LIBADD  = %D%/librdma_native.la backends/engine/libengine.la $(RDMA_LIBS)
endif
