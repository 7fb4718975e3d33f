# The gates on the hosts of a profile: two hosts for those who own RNICs, two processes for all.
if BACKEND_RDMA
if HAVE_CHECK
test_helpers += %D%/side
%C%_side_SOURCES  = %D%/side.c tools/json.c
%C%_side_CPPFLAGS = $(AM_CPPFLAGS) $(GLIB_CFLAGS) $(JSON_CFLAGS)
%C%_side_LDADD    = $(GLIB_LIBS) $(JSON_LIBS)
endif
endif
EXTRA_DIST += %D%/run
test_scripts += %D%/test-doctored.sh
