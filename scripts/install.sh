#!/usr/bin/env bash
# install.sh: installs the built preset below PREFIX and starts each installed tool from there.
set -eu -o pipefail
. "$(dirname "$0")/common.sh"
keep_inside_build

stage "install $PRESET below $PREFIX"
cmake --install "$BUILD/$PRESET" --prefix "$PREFIX" >"$BUILD/install.log" || {
    tail -15 "$BUILD/install.log" >&2
    die "cmake could not install below $PREFIX (see above and $BUILD/install.log)"
}
num_tools=0
for tool in "$PREFIX"/bin/plimsoll-*; do
    [ -x "$tool" ] || continue
    # From the root folder and without the environment: nothing but the installed files may be needed.
    (cd / && env -i PATH=/usr/bin:/bin "$tool" --help >/dev/null) || die "$tool --help failed"
    say "  starts   $tool"
    num_tools=$((num_tools + 1))
done
[ "$num_tools" -gt 0 ] || die "no tool was installed below $PREFIX/bin"
say "installed $num_tools tools in $PREFIX/bin, libraries in $PREFIX/lib, models in $PREFIX/share/plimsoll/models"
