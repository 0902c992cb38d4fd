# Virtual environments of pinned wheels below the build folder. Sourced by deps.sh.
#
# A complete environment carries a stamp with the pinned list and the Python that it was made with. Without a stamp (made
# by hand, or an install that was interrupted) it is checked file by file: whole, it is stamped; else it is made anew.

pip_install()
{
    local venv=$1
    shift
    local from=()
    [ -z "${WHEELS:-}" ] || from=(--no-index --find-links "$WHEELS")
    "$venv/bin/python" -m pip --quiet --no-input --disable-pip-version-check install --no-cache-dir "${from[@]}" "$@" \
        </dev/null || die "pip could not install $* into $venv (see above). to install offline: WHEELS=DIR with these wheels"
}

pinned() { grep -vE '^ *(#|$)' "$1"; }

# stamp_text REQUIREMENTS
stamp_text() { pinned "$1" && "$PYTHON" --version; }

is_complete()
{
    local venv=$1 requirements=$2 dependencies=$3
    [ -x "$venv/bin/python" ] || return 1
    if [ -f "$venv/complete.stamp" ]; then
        [ "$(cat "$venv/complete.stamp")" = "$(stamp_text "$requirements")" ]
        return
    fi
    "$venv/bin/python" "$SOURCE_DIR/scripts/venv_complete.py" "$requirements" "--$dependencies" >&2
}

# ensure_venv NAME REQUIREMENTS with-dependencies|no-dependencies
ensure_venv()
{
    local name=$1 requirements=$2 dependencies=$3
    local venv=$BUILD/$name seconds=$SECONDS flags=()
    if is_complete "$venv" "$requirements" "$dependencies"; then
        say "  found    $(printf '%-30s' "$name") $venv"
    else
        [ -z "${WHEELS:-}" ] || [ -d "$WHEELS" ] || die "WHEELS=$WHEELS is no folder"
        say "install   $name: $(pinned "$requirements" | tr '\n' ' ')into $venv"
        [ "$dependencies" = with-dependencies ] || flags=(--no-deps)
        rm -rf "$venv"
        "$PYTHON" -m venv "$venv"
        pip_install "$venv" "${flags[@]}" -r "$requirements"
        say "  done     $name in $((SECONDS - seconds)) s"
    fi
    stamp_text "$requirements" >"$venv/complete.stamp"
}

# A LibTorch of the user's own is taken as it is; another version than the pinned one brings the small wheels it asks for.
ensure_libtorch()
{
    if [ "${WITH_TORCH:-ON}" = OFF ]; then
        say "  skipped  LibTorch                       WITH_TORCH=OFF"
        return
    fi
    if [ -n "${LibTorch_ROOT:-}" ]; then
        local library
        for library in "$LibTorch_ROOT"/{lib,lib/python3*/site-packages/torch/lib}/libtorch_cpu.so; do
            [ ! -e "$library" ] || break
        done
        [ -e "$library" ] ||
            die "LibTorch_ROOT=$LibTorch_ROOT has no lib/libtorch_cpu.so (wanted: an unpacked libtorch, a torch folder or a venv)"
        say "  found    LibTorch                       $LibTorch_ROOT"
        return
    fi
    local requirements=$SOURCE_DIR/scripts/requirements/libtorch.txt
    if ! grep -qx "torch==$TORCH_VERSION" "$requirements"; then
        requirements=$BUILD/libtorch-$TORCH_VERSION.txt
        [ -f "$requirements" ] || pin_other_torch "$requirements"
    fi
    ensure_venv libtorch "$requirements" no-dependencies
}

# pin_other_torch FILE: asks the wheel of TORCH_VERSION itself which CUDA runtime and CUPTI it wants.
pin_other_torch()
{
    local scratch=$BUILD/tmp/torch-$TORCH_VERSION
    say "install   torch==$TORCH_VERSION alone, to read which small CUDA wheels it needs"
    rm -rf "$scratch"
    "$PYTHON" -m venv "$scratch"
    pip_install "$scratch" --no-deps "torch==$TORCH_VERSION"
    "$scratch/bin/python" "$SOURCE_DIR/scripts/torch_needs.py" >"$scratch/needs.txt" ||
        die "torch $TORCH_VERSION does not say which CUDA runtime it needs. set LibTorch_ROOT to a LibTorch that loads"
    local cuda
    cuda=$(grep -v '^cuda-toolkit' "$scratch/needs.txt" || true)
    if grep -q '^cuda-toolkit' "$scratch/needs.txt"; then
        pip_install "$scratch" -r "$scratch/needs.txt"
        cuda=$("$scratch/bin/python" -m pip --disable-pip-version-check freeze |
            grep -E '^nvidia-cuda-(runtime|cupti)')
    fi
    { say "torch==$TORCH_VERSION" && [ -z "$cuda" ] || say "$cuda"; } >"$1.tmp"
    mv "$1.tmp" "$1"
    rm -rf "$scratch"
}

# Arrow C++ of the system or of Arrow_ROOT, else the wheel's.
ensure_arrow()
{
    local found
    if [ "${WITH_PARQUET:-ON}" = OFF ]; then
        say "  skipped  Arrow C++                      WITH_PARQUET=OFF"
    elif [ -n "${Arrow_ROOT:-}" ]; then
        say "  found    Arrow C++                      $Arrow_ROOT"
    elif found=$(find_need header:parquet/api/reader.h); then
        say "  found    Arrow C++                      $found"
    else
        ensure_venv arrow "$SOURCE_DIR/scripts/requirements/arrow.txt" no-dependencies
    fi
}

ensure_oracles() { ensure_venv oracles "$SOURCE_DIR/scripts/requirements/oracles.txt" with-dependencies; }
