test_scripts += %D%/test-readme.sh
