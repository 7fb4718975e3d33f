# The fault catalogue: engines over softverbs, and the same on real verbs for the guest.
catalogue_kit         = tests/unit/catalogue.h
catalogue_real_ldadd  = $(rdma_kit) $(real_ldadd)
test_programs += %D%/catalogue-requester %D%/catalogue-owner
test_helpers  += %D%/real-catalogue-requester %D%/real-catalogue-owner
%C%_catalogue_requester_SOURCES       = tests/unit/test-catalogue-requester.c $(catalogue_kit)
%C%_catalogue_requester_CPPFLAGS      = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_catalogue_requester_LDADD         = $(softverbs_engine_ldadd)
%C%_real_catalogue_requester_SOURCES  = tests/unit/test-catalogue-requester.c $(catalogue_kit)
%C%_real_catalogue_requester_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_real_catalogue_requester_LDADD    = $(catalogue_real_ldadd)
%C%_catalogue_owner_SOURCES           = tests/unit/test-catalogue-owner.c $(catalogue_kit)
%C%_catalogue_owner_CPPFLAGS          = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_catalogue_owner_LDADD             = $(softverbs_engine_ldadd)
%C%_real_catalogue_owner_SOURCES      = tests/unit/test-catalogue-owner.c $(catalogue_kit)
%C%_real_catalogue_owner_CPPFLAGS     = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_real_catalogue_owner_LDADD        = $(catalogue_real_ldadd)
test_programs += %D%/catalogue-device
test_threaded += %D%/catalogue-device
test_helpers  += %D%/real-catalogue-device
%C%_catalogue_device_SOURCES       = tests/unit/test-catalogue-device.c $(catalogue_kit)
%C%_catalogue_device_CPPFLAGS      = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_catalogue_device_LDADD         = $(softverbs_engine_ldadd)
%C%_real_catalogue_device_SOURCES  = tests/unit/test-catalogue-device.c $(catalogue_kit)
%C%_real_catalogue_device_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_real_catalogue_device_LDADD    = $(catalogue_real_ldadd)
# What only softverbs can be told to do.
test_waiting += %D%/catalogue-fabric
%C%_catalogue_fabric_SOURCES  = tests/unit/test-catalogue-fabric.c $(catalogue_kit)
%C%_catalogue_fabric_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_catalogue_fabric_LDADD    = $(softverbs_engine_ldadd)
# What needs a wire, in the guest.
test_helpers  += %D%/real-catalogue-wire
%C%_real_catalogue_wire_SOURCES  = tests/unit/test-catalogue-wire.c $(catalogue_kit)
%C%_real_catalogue_wire_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_real_catalogue_wire_LDADD    = $(catalogue_real_ldadd)
