dnl Macros of this tree's own configure.ac. What third parties use is in escrow.m4.

dnl ESCROW_OPTIONAL(NAME, PKG-CONFIG-MODULES, CONDITIONAL, WHAT)
dnl --enable-NAME=auto|yes|no; sets CONDITIONAL, and NAME_CFLAGS and NAME_LIBS in capitals.
AC_DEFUN([ESCROW_OPTIONAL],[
  m4_pushdef([UP],m4_toupper([$1]))
  AC_ARG_ENABLE([$1],[AS_HELP_STRING([--disable-$1],[leave out $4 (default: auto)])],
    [],[enable_$1=auto])
  have_$1=no
  AS_IF([test "x$enable_$1" != xno],
    [PKG_CHECK_MODULES(UP,[$2],[have_$1=yes],
      [AS_IF([test "x$enable_$1" = xyes],[AC_MSG_ERROR([--enable-$1: $2 not found])])])])
  AS_IF([test $have_$1 = yes],[escrow_optional="$escrow_optional $1"])
  AM_CONDITIONAL([$3],[test $have_$1 = yes])
  m4_popdef([UP])
])

dnl ESCROW_UNIT_TESTS: --enable-tests=auto|yes|no; yes makes a missing Check an error, so that a CI
dnl run cannot pass by leaving the unit tests out.
AC_DEFUN([ESCROW_UNIT_TESTS],[
  AC_ARG_ENABLE([tests],[AS_HELP_STRING([--enable-tests],[fail if Check is missing (default: auto)])],
    [],[enable_tests=auto])
  have_check=no
  AS_IF([test "x$enable_tests" != xno],
    [PKG_CHECK_MODULES([CHECK],[check >= 0.15],[have_check=yes],
      [AS_IF([test "x$enable_tests" = xyes],[AC_MSG_ERROR([--enable-tests: Check not found])])])])
  AM_CONDITIONAL([HAVE_CHECK],[test $have_check = yes])
])

dnl ESCROW_WARNINGS: WARN_CFLAGS and HARD_LDFLAGS, the flags this compiler knows; -Werror by request.
dnl HARD_LDFLAGS goes into everything we link, MODULE_HARD_LDFLAGS (abi S2) into backends.
AC_DEFUN([ESCROW_WARNINGS],[
  AC_ARG_ENABLE([werror],[AS_HELP_STRING([--enable-werror],[warnings are errors])],
    [],[enable_werror=no])
  WARN_CFLAGS="-std=gnu11"
  AX_APPEND_COMPILE_FLAGS([-fvisibility=hidden -Wall -Wextra -Wshadow -Wstrict-prototypes \
    -Wmissing-prototypes -Wold-style-definition -Wpointer-arith -Wwrite-strings -Wundef \
    -Wformat=2 -Wvla -Wimplicit-fallthrough -Wcast-qual -Wdouble-promotion -Wno-unused-parameter \
    -fstack-protector-strong -fstack-clash-protection],[WARN_CFLAGS],[-Werror])
  dnl clang reads neither a fall-through comment nor a format handed through by an attribute.
  AS_CASE([$CC],[*clang*],[WARN_CFLAGS="$WARN_CFLAGS -Wno-implicit-fallthrough -Wno-format-nonliteral"])
  AX_APPEND_LINK_FLAGS([-Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack \
    -Wl,--as-needed],[HARD_LDFLAGS])
  AX_APPEND_LINK_FLAGS([-Wl,-z,nodelete],[MODULE_HARD_LDFLAGS])
  AS_IF([test "x$enable_werror" = xyes],[WARN_CFLAGS="$WARN_CFLAGS -Werror"])
  AC_SUBST([WARN_CFLAGS]) AC_SUBST([HARD_LDFLAGS]) AC_SUBST([MODULE_HARD_LDFLAGS])
])

dnl ESCROW_SANITIZERS: --enable-sanitizers=address,undefined | thread, and the two short names.
AC_DEFUN([ESCROW_SANITIZERS],[
  AC_REQUIRE([ESCROW_WARNINGS])
  AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers=LIST],[address,undefined or thread])],
    [escrow_sanitizers=$enableval],[escrow_sanitizers=])
  AC_ARG_ENABLE([asan],[AS_HELP_STRING([--enable-asan],[same as --enable-sanitizers=address,undefined])],
    [AS_IF([test "x$enableval" = xyes],[escrow_sanitizers=address,undefined])])
  AC_ARG_ENABLE([tsan],[AS_HELP_STRING([--enable-tsan],[same as --enable-sanitizers=thread])],
    [AS_IF([test "x$enableval" = xyes],[escrow_sanitizers=thread])])
  AS_CASE([$escrow_sanitizers],[yes],[escrow_sanitizers=address,undefined],[no],[escrow_sanitizers=])
  AS_IF([test -n "$escrow_sanitizers"],[
    AX_CHECK_LINK_FLAG([-fsanitize=$escrow_sanitizers],
      [SAN_CFLAGS="-fsanitize=$escrow_sanitizers -fno-omit-frame-pointer -fno-sanitize-recover=all"],
      [AC_MSG_ERROR([this compiler has no -fsanitize=$escrow_sanitizers])])
    # The sanitizer's runtime is in the program, not in the module, so a module has undefined symbols.
    HARD_LDFLAGS=`AS_ECHO(["$HARD_LDFLAGS"]) | $SED 's/-Wl,-z,defs//'`])
  AC_SUBST([SAN_CFLAGS])
  AC_SUBST([SANITIZERS],[$escrow_sanitizers])
  AM_CONDITIONAL([SANITIZED],[test -n "$escrow_sanitizers"])
])

dnl ESCROW_COVERAGE: --enable-coverage, for ./dev coverage (needs gcovr).
AC_DEFUN([ESCROW_COVERAGE],[
  AC_ARG_ENABLE([coverage],[AS_HELP_STRING([--enable-coverage],[build for ./dev coverage])],
    [],[enable_coverage=no])
  AS_IF([test "x$enable_coverage" = xyes],[COVERAGE_CFLAGS="--coverage -fprofile-update=atomic -O0 -g -DESCROW_COVERAGE"])
  AC_SUBST([COVERAGE_CFLAGS])
  # glibc warns when _FORTIFY_SOURCE meets -O0, and the sanitizers have their own checks.
  AS_CASE(["x$enable_coverage$escrow_sanitizers $CFLAGS "],
    [*" -O0 "*],[],
    ["xno "*],[FORTIFY_CPPFLAGS="-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2"])
  AC_SUBST([FORTIFY_CPPFLAGS])
])
