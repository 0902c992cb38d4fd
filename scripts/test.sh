#!/usr/bin/env bash
# test.sh: every test. Preset ci with all labels, the Clang 14 build of what is free of torch, then the tests of labels
# unit and ranks under AddressSanitizer with UBSan and under ThreadSanitizer. A failing stage does not stop the others; one table at the end.
set -u -o pipefail
. "$(dirname "$0")/common.sh"
keep_inside_build
need_disk 11 "test" || exit 1
results=$BUILD/test-results
rm -rf "$results"
mkdir -p "$results"

# run_stage NAME COMMAND...: keeps name, seconds and outcome for the table.
run_stage()
{
    local name=$1 started=$SECONDS outcome=ok
    shift
    "$@" || outcome=FAILED
    printf '%s %s %s\n' "$name" $((SECONDS - started)) "$outcome" >>"$results/stages"
    [ "$outcome" = ok ]
}

# build_and_test PRESET TARGETS ...: then ctest with the preset's labels.
build_and_test()
{
    local preset=$1
    shift
    run_stage "build-$preset" "$SOURCE_DIR/scripts/build.sh" "$preset" "$@" || return
    stage "test $preset"
    cd "$SOURCE_DIR" || return
    run_stage "test-$preset" \
        ctest --test-dir "$BUILD/$preset" "${labels[@]}" --no-tests=error --output-on-failure -j "$JOBS" \
        --output-junit "$results/test-$preset.xml" --test-output-size-passed 4000000 --test-output-size-failed 4000000 \
        </dev/null
}

if run_stage deps "$SOURCE_DIR/scripts/deps.sh" demo test; then
    labels=()
    build_and_test ci all plimsoll_nn_verify_interface_header_sets
    run_stage install-ci env PRESET=ci PREFIX="$BUILD/install" "$SOURCE_DIR/scripts/install.sh"
    labels=(-L '^(unit|ranks)$')
    run_stage build-clang "$SOURCE_DIR/scripts/build.sh" clang all all_verify_interface_header_sets
    build_and_test asan tests_unit tests_ranks
    build_and_test tsan tests_unit tests_ranks
fi
stage "summary"
"$PYTHON" "$SOURCE_DIR/scripts/summarize_tests.py" "$results"
