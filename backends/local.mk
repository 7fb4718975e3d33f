# A new backend: its folder, one line here; one line in configure.ac if it needs a library.
# Its target is backends/NAME.la, so that all modules meet in one .libs folder of the build.
include %D%/ledger/local.mk
include %D%/engine/local.mk
include %D%/mock/local.mk
include %D%/rdma/local.mk
