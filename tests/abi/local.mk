# The gates of the ABI: headers alone, growth against every published revision, files of backends.
test_scripts += %D%/test-headers.sh %D%/test-growth.sh %D%/test-modules.sh \
                %D%/test-versions.sh
EXTRA_DIST   += %D%/version-host.c %D%/abi-lib.sh %D%/future-header %D%/as-published
