#!/usr/bin/env bash
# run_demo.sh RUN_DIR: what the demo needs, the build, the demo itself.
set -eu -o pipefail
. "$(dirname "$0")/common.sh"
keep_inside_build
need_disk 3.5 "demo"
"$SOURCE_DIR/scripts/deps.sh" demo
"$SOURCE_DIR/scripts/build.sh" "$PRESET"
stage "demo in $1"
"$SOURCE_DIR/scripts/demo.sh" "$BUILD/$PRESET/bin" "$1" </dev/null
