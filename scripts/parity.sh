#!/usr/bin/env bash
# parity.sh: every row of tests/torch/parity/layouts.txt in fp64 and fp32, those marked so in bf16, with both numbers of micro-batches,
# against one rank; over MPI the rows marked so. Writes the largest differences into the tables of docs/parallel_layouts.md.
set -eu -o pipefail
. "$(dirname "$0")/common.sh"
keep_inside_build
"$SOURCE_DIR/scripts/deps.sh" test
"$SOURCE_DIR/scripts/build.sh" ci torch_parity mpi_parity
figures=$BUILD/parity_figures.tsv
rm -f "$figures"
stage "parity of every layout, over threads"
failed=0
PLIMSOLL_PARITY=all PLIMSOLL_PARITY_FIGURES=$figures "$BUILD/ci/bin/torch_parity" --gtest_brief=1 </dev/null || failed=1
for ranks in 2 4; do
    stage "parity over MPI, $ranks ranks"
    mpiexec -n "$ranks" "$BUILD/ci/bin/mpi_parity" --gtest_brief=1 </dev/null || failed=1
done
[ "$failed" = 0 ] || die "a layout does not compute what one rank computes (see above); the tables are left as they were"
"$PYTHON" "$SOURCE_DIR/scripts/parity_table.py" "$figures" "$SOURCE_DIR/docs/parallel_layouts.md"
