#!/usr/bin/env bash
# deps.sh GROUP...: finds what the groups (build, demo, test) need and installs what is missing.
#
# On Debian 12 as root, or with sudo that asks nothing, missing packages are installed. Anywhere else nothing is installed
# on the system: each need is listed as found or missing, and the run goes on only when all are found. The Python wheels go
# into virtual environments below the build folder: LibTorch and Arrow always (unless LibTorch_ROOT
# and Arrow_ROOT name them or the system has Arrow), the oracles for test.
set -eu -o pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/find_need.sh"
. "$(dirname "$0")/venv.sh"
keep_inside_build

# Prints "sudo -n", "" (root), or fails with the reason why packages cannot be installed here.
package_rights()
{
    local id="" version="" release=${OS_RELEASE:-/etc/os-release}
    if [ -r "$release" ]; then
        id=$(. "$release" && echo "${ID:-}")
        version=$(. "$release" && echo "${VERSION_ID:-}")
    fi
    if [ "$id $version" != "debian 12" ]; then
        say "this is ${id:-an unknown system} ${version:-}, not debian 12"
        return 1
    elif [ "$(id -u)" = 0 ]; then
        return 0
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        say "sudo -n"
        return 0
    fi
    say "neither root nor sudo without a password"
    return 1
}

# Fills the arrays `table` (lines for the user) and `missing` (Debian packages).
look_for_needs()
{
    table=() missing=()
    local group kind package found
    while read -r group kind package; do
        case " $groups " in *" $group "*) ;; *) continue ;; esac
        if found=$(find_need "$kind"); then
            table+=("$(printf '  found    %-30s %s' "$package" "$found")")
        else
            table+=("$(printf '  missing  %-30s %s' "$package" "${found:-${kind#*:}}")")
            missing+=("$package")
        fi
    done < <(grep -v '^#' "$SOURCE_DIR/scripts/needs.txt")
}

install_packages()
{
    local sudo=$1 log=$BUILD/apt.log
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o APT::Color=0 -y -q)
    say "install   ${missing[*]}   (log: $log)"
    if ! { $sudo "${apt[@]}" update && $sudo "${apt[@]}" install --no-install-recommends "${missing[@]}"; } \
        >"$log" 2>&1 </dev/null; then
        tail -15 "$log" >&2
        die "apt-get could not install the packages (see above and $log)"
    fi
}

groups="build $*"
stage "needs of: $groups"
look_for_needs
if [ ${#missing[@]} -gt 0 ]; then
    if rights=$(package_rights); then
        install_packages "$rights"
        hash -r
        look_for_needs
        printf '%s\n' "${table[@]}"
        [ ${#missing[@]} -eq 0 ] || die "still missing after installing: ${missing[*]}"
    else
        printf '%s\n' "${table[@]}"
        die "${#missing[@]} of ${#table[@]} needs are missing (nothing is installed here: $rights)." \
            "install these or their like: ${missing[*]}"
    fi
else
    printf '%s\n' "${table[@]}"
fi

ensure_libtorch
ensure_arrow
case " $groups " in *" test "*) ensure_oracles ;; esac
