# Backends for the tests of libescrow: one that works (fake), and bad ones; see fake.c. A module whose
# name is not in the source's folder: TEST_MODULE_PATH is tests/.libs.
EXTRA_DIST += %D%/fake.h %D%/fake-engine.h
check_LTLIBRARIES += tests/fake.la
tests_fake_la_SOURCES = %D%/fake.c
tests_fake_la_LDFLAGS = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-exit.la
tests_bad_exit_la_SOURCES  = %D%/fake.c
tests_bad_exit_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=1
tests_bad_exit_la_LDFLAGS  = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-crash.la
tests_bad_crash_la_SOURCES  = %D%/fake.c
tests_bad_crash_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=2
tests_bad_crash_la_LDFLAGS  = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-hang.la
tests_bad_hang_la_SOURCES  = %D%/fake.c
tests_bad_hang_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=3
tests_bad_hang_la_LDFLAGS  = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-slot.la
tests_bad_slot_la_SOURCES  = %D%/fake.c
tests_bad_slot_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=4
tests_bad_slot_la_LDFLAGS  = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-revision.la
tests_bad_revision_la_SOURCES  = %D%/fake.c
tests_bad_revision_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=5
tests_bad_revision_la_LDFLAGS  = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-range.la
tests_bad_range_la_SOURCES  = %D%/fake.c
tests_bad_range_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=6
tests_bad_range_la_LDFLAGS  = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-descriptor.la
tests_bad_descriptor_la_SOURCES  = %D%/fake.c
tests_bad_descriptor_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=7
tests_bad_descriptor_la_LDFLAGS  = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-cap.la
tests_bad_cap_la_SOURCES  = %D%/fake.c
tests_bad_cap_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=8
tests_bad_cap_la_LDFLAGS  = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-open.la
tests_bad_open_la_SOURCES  = %D%/fake.c
tests_bad_open_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=11
tests_bad_open_la_LDFLAGS  = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-end.la
tests_bad_end_la_SOURCES  = %D%/fake.c
tests_bad_end_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=12
tests_bad_end_la_LDFLAGS  = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-asked.la
tests_bad_asked_la_SOURCES  = %D%/fake.c
tests_bad_asked_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=13
tests_bad_asked_la_LDFLAGS  = $(escrow_check_module_ldflags)

check_LTLIBRARIES += tests/bad-leave.la
tests_bad_leave_la_SOURCES  = %D%/fake.c
tests_bad_leave_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=14
tests_bad_leave_la_LDFLAGS  = $(escrow_check_module_ldflags)

# Two exports.
check_LTLIBRARIES += tests/bad-export.la
tests_bad_export_la_SOURCES  = %D%/fake.c
tests_bad_export_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=9
tests_bad_export_la_LDFLAGS  = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere

# May be unmapped: without -z nodelete.
check_LTLIBRARIES += tests/bad-unmap.la
tests_bad_unmap_la_SOURCES  = %D%/fake.c
tests_bad_unmap_la_CPPFLAGS = $(AM_CPPFLAGS) -DBAD=10
tests_bad_unmap_la_LDFLAGS  = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere \
                              -export-symbols-regex '^escrow_backend_entry_1$$'

# No entry at all, and no entry but that of a library it needs.
check_LTLIBRARIES += tests/bad-none.la tests/bad-depend.la
tests_bad_none_la_SOURCES   = %D%/depend.c
tests_bad_none_la_LDFLAGS   = $(AM_LDFLAGS) $(MODULE_HARD_LDFLAGS) -module -avoid-version -shared \
                              -rpath /nowhere
tests_bad_depend_la_SOURCES  = %D%/depend.c
tests_bad_depend_la_CPPFLAGS = $(AM_CPPFLAGS) -DDEPEND
tests_bad_depend_la_LDFLAGS  = $(AM_LDFLAGS) $(MODULE_HARD_LDFLAGS) -module -avoid-version -shared \
                               -rpath /nowhere
tests_bad_depend_la_LIBADD   = tests/fake.la
