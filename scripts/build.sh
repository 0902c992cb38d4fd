#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures the preset in BUILD/PRESET and builds it.
set -eu -o pipefail
. "$(dirname "$0")/common.sh"
keep_inside_build

preset=$1
shift
dir=$BUILD/$preset
log=$BUILD/$preset-configure.log
settings=()
if [ -n "${LibTorch_ROOT:-}" ]; then
    settings+=("-DLibTorch_ROOT=$LibTorch_ROOT")
else
    settings+=("-DLibTorch_ROOT=$BUILD/libtorch")
fi
[ ! -d "${Arrow_ROOT:-$BUILD/arrow}" ] || settings+=("-DArrow_ROOT=${Arrow_ROOT:-$BUILD/arrow}")
[ -z "${WITH_PARQUET:-}" ] || settings+=("-DWITH_PARQUET=$WITH_PARQUET")
[ ! -x "$BUILD/oracles/bin/python" ] || settings+=("-DPLIMSOLL_PYTHON=$BUILD/oracles/bin/python")
[ -z "${WITH_TORCH:-}" ] || settings+=("-DWITH_TORCH=$WITH_TORCH")
[ -z "${WITH_CUDA:-}" ] || settings+=("-DWITH_CUDA=$WITH_CUDA")
[ -z "${CUDA_ARCH:-}" ] || settings+=("-DCMAKE_CUDA_ARCHITECTURES=$CUDA_ARCH")
case $preset in
clang | asan | tsan) unset CXX ;;  # these presets name their compiler
*) [ -z "${CXX:-}" ] || settings+=("-DCMAKE_CXX_COMPILER=$CXX") ;;
esac

stage "build $preset in $dir"
cd "$SOURCE_DIR"
if ! cmake --preset "$preset" -B "$dir" "${settings[@]}" >"$log" 2>&1 </dev/null; then
    tail -30 "$log" >&2
    die "cmake could not configure preset '$preset' (see above and $log)"
fi
sed -n '/^-- plimsoll/,/^--   tests/s/^-- //p' "$log"

targets=()
for target in "$@"; do targets+=(--target "$target"); done
started=$SECONDS
log=$BUILD/$preset-build.log
if ! cmake --build "$dir" -j "$JOBS" "${targets[@]}" >"$log" 2>&1 </dev/null; then
    grep -vE '^\[[0-9]+/[0-9]+\]|^env CCACHE' "$log" | cut -c1-300 | head -60 >&2
    die "the build of preset '$preset' failed (see above and $log)"
fi
say "built     $preset in $((SECONDS - started)) s ($(grep -c . "$log") lines of log in $log)"
