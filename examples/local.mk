# Programs to copy from. The backend skeleton is a package of its own, built out of this tree by
# make installcheck.
EXTRA_DIST += %D%/backend-skeleton/configure.ac %D%/backend-skeleton/Makefile.am \
              %D%/backend-skeleton/skeleton.c %D%/backend-skeleton/engine.c \
              %D%/backend-skeleton/engine.h
installcheck_scripts += %D%/test-skeleton.sh

# The header and dlopen, nothing else: built by make, run by a test on every backend of the tree.
noinst_PROGRAMS += %D%/minimal-host
%C%_minimal_host_SOURCES = %D%/minimal-host.c
