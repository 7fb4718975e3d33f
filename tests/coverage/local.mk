# How much of backends/ the tests run through: ./dev coverage, of a build with --enable-coverage.
EXTRA_DIST   += %D%/run %D%/report %D%/kinds docs/coverage.md
test_scripts += %D%/test-report.sh
