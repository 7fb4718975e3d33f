# Promela models; spin is asked for when the test runs.
EXTRA_DIST   += %D%/common.pml %D%/loan.pml %D%/grant.pml %D%/death.pml %D%/whole.pml %D%/table docs/models.md
test_scripts += %D%/test-models.sh
