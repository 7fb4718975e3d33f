dnl escrow.m4 - for packages that hold a backend for Escrow.            serial 1
dnl SPDX-License-Identifier: BSD-2-Clause
dnl
dnl Three lines of configure.ac make a backend:
dnl
dnl   LT_INIT([disable-static])
dnl   ESCROW_BACKEND_INIT
dnl   AC_CONFIG_FILES([Makefile])
dnl
dnl and in Makefile.am, for a backend called acme:
dnl
dnl   backend_LTLIBRARIES = acme.la
dnl   acme_la_SOURCES     = acme.c
dnl   acme_la_CPPFLAGS    = $(ESCROW_CPPFLAGS)
dnl   acme_la_CFLAGS      = $(ESCROW_BACKEND_CFLAGS)
dnl   acme_la_LDFLAGS     = -module $(ESCROW_BACKEND_LDFLAGS)
dnl   check-local: acme.la
dnl           $(ESCROW_CONFORM) $(builddir)/.libs/acme.so
dnl
dnl ESCROW_BACKEND_INIT([MINIMUM-VERSION])
dnl Needs pkg-config's file escrow.pc. Sets, for Makefile.am:
dnl   ESCROW_CPPFLAGS         where <escrow/backend.h> is; a backend links nothing of ours
dnl   ESCROW_BACKEND_CFLAGS   hidden visibility (clause S1)
dnl   ESCROW_BACKEND_LDFLAGS  a module that exports its entry alone (S1), with the link flags of S2,
dnl                           each only if this linker knows it
dnl   backenddir              where hosts look; --with-backenddir=DIR overrides it
dnl   ESCROW_CONFORM          the conformance suite's command, or "false" if it is not installed
AC_DEFUN([ESCROW_BACKEND_INIT],[
  AC_REQUIRE([AC_PROG_CC])
  AC_REQUIRE([LT_INIT])
  m4_ifdef([PKG_PROG_PKG_CONFIG],[PKG_PROG_PKG_CONFIG],[AC_PATH_PROG([PKG_CONFIG],[pkg-config])])
  AS_IF([test -z "$PKG_CONFIG"],[AC_MSG_ERROR([pkg-config is needed to find escrow])])
  AC_MSG_CHECKING([for escrow]m4_ifnblank([$1],[[ >= $1]]))
  AS_IF([$PKG_CONFIG --exists "escrow[]m4_ifnblank([$1],[ >= $1])"],
    [AC_MSG_RESULT([`$PKG_CONFIG --modversion escrow`])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([`$PKG_CONFIG --print-errors --exists "escrow[]m4_ifnblank([$1],[ >= $1])" 2>&1`])])

  ESCROW_CPPFLAGS=`$PKG_CONFIG --cflags escrow`
  ESCROW_BACKEND_CFLAGS=-fvisibility=hidden
  # The doubled dollar is make's.
  ESCROW_BACKEND_LDFLAGS="-module -avoid-version -shared -no-undefined -export-symbols-regex '^escrow_backend_entry_1\$\$'"
  escrow_save_LDFLAGS=$LDFLAGS
  for escrow_flag in defs now relro noexecstack nodelete; do
    AC_MSG_CHECKING([whether the linker accepts -z $escrow_flag])
    LDFLAGS="$escrow_save_LDFLAGS -Wl,-z,$escrow_flag"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([],[])],
      [AC_MSG_RESULT([yes]); ESCROW_BACKEND_LDFLAGS="$ESCROW_BACKEND_LDFLAGS -Wl,-z,$escrow_flag"],
      [AC_MSG_RESULT([no])])
  done
  LDFLAGS=$escrow_save_LDFLAGS

  AC_ARG_WITH([backenddir],
    [AS_HELP_STRING([--with-backenddir=DIR],[where backends are installed (default: ask pkg-config)])],
    [backenddir=$withval],[backenddir=`$PKG_CONFIG --variable=backenddir escrow`])
  AC_PATH_PROG([ESCROW],[escrow],[],
    [`$PKG_CONFIG --variable=bindir escrow`$PATH_SEPARATOR$PATH])
  AS_IF([test -n "$ESCROW"],[ESCROW_CONFORM="$ESCROW conform"],[ESCROW_CONFORM=false])

  AC_SUBST([ESCROW_CPPFLAGS])
  AC_SUBST([ESCROW_BACKEND_CFLAGS])
  AC_SUBST([ESCROW_BACKEND_LDFLAGS])
  AC_SUBST([ESCROW_CONFORM])
  AC_SUBST([backenddir])
])
