#!/usr/bin/env bash
# bench.sh: runs each script of tests/bench with the built preset; figures only, nothing is asserted.
set -eu -o pipefail
. "$(dirname "$0")/common.sh"
keep_inside_build
export PLIMSOLL_BIN=$BUILD/$PRESET/bin
num_scripts=0
for script in "$SOURCE_DIR"/tests/bench/*.py "$SOURCE_DIR"/tests/bench/*.sh; do
    [ -f "$script" ] || continue
    stage "bench $(basename "$script")"
    case $script in
    *.py) "$BUILD/oracles/bin/python" "$script" </dev/null ;;
    *.sh) bash "$script" </dev/null ;;
    esac
    num_scripts=$((num_scripts + 1))
done
[ "$num_scripts" -gt 0 ] || die "no script in tests/bench"
