# Shared by the scripts behind Makefile.local: messages, disk space, timing. Sourced, never run.

SOURCE_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${BUILD:=$SOURCE_DIR/build}"
: "${PRESET:=release}"
: "${TORCH_VERSION:=2.11.0}"
: "${PYTHON:=$( [ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)}"
: "${JOBS:=$(nproc)}"

say() { printf '%s\n' "$*"; }
stage() { printf '\n== %s\n' "$*"; }
die()
{
    printf 'plimsoll: %s\n' "$*" >&2
    exit 1
}

# Everything that the tools below would put into a home folder or the source tree goes below the build folder.
keep_inside_build()
{
    mkdir -p "$BUILD/tmp"
    export TMPDIR=$BUILD/tmp
    export PYTHONPYCACHEPREFIX=$BUILD/pycache HF_HOME=$BUILD/huggingface MPLCONFIGDIR=$BUILD/matplotlib
    export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$BUILD/cache}
    unset PYTHONPATH PYTHONHOME
    # A compiler cache that exists is used as it is; a new one stays inside.
    if [ -z "${CCACHE_DIR:-}" ] && [ ! -d "$HOME/.cache/ccache" ] && [ ! -d "$HOME/.ccache" ]; then
        export CCACHE_DIR=$BUILD/ccache
    elif [ -z "${CCACHE_DIR:-}" ] && [ -d "$HOME/.cache/ccache" ]; then
        export CCACHE_DIR=$HOME/.cache/ccache
    fi
}

# need_disk GB WHAT: says what will be used at most and stops early when it cannot fit. What is there already counts.
need_disk()
{
    local need_gb=$1 what=$2 used_mb free_mb
    mkdir -p "$BUILD"
    used_mb=$(du -sm "$BUILD" 2>/dev/null | cut -f1)
    free_mb=$(df -Pm "$BUILD" | awk 'NR == 2 {print $4}')
    printf 'disk      %s uses at most %s GB below %s (%s MB used so far, %s MB free)\n' \
        "$what" "$need_gb" "$BUILD" "$used_mb" "$free_mb"
    if [ $((used_mb + free_mb)) -lt $((need_gb * 1000)) ]; then
        die "$what needs ${need_gb} GB below $BUILD (${free_mb} MB free). free some space, or set BUILD=DIR on another disk"
    fi
}
