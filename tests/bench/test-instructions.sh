#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# A slice costs as many instructions as tests/bench/instructions.tsv says, within 5 %. Prints TAP.
exec bash "$(dirname "${BASH_SOURCE[0]}")/instructions" --check
