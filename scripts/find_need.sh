# find_need KIND: one row of needs.txt. Prints where (and which version) it was found, or fails. Sourced by deps.sh.

# version_of PROGRAM: the first dotted number of its --version.
version_of() { "$1" --version 2>/dev/null </dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -1; }

# at_least FOUND WANTED
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -1)" = "$2" ]; }

find_program()
{
    local names=${1%%>=*} wanted="" name path version
    case $1 in *'>='*) wanted=${1##*>=} ;; esac
    for name in ${names//|/ }; do
        path=$(command -v "$name") || continue
        if [ -z "$wanted" ]; then
            say "$path"
            return 0
        fi
        version=$(version_of "$path")
        if at_least "${version:-0}" "$wanted"; then
            say "$path $version"
            return 0
        fi
        say "$path is ${version:-of unknown version}, $wanted is the oldest that will do"
        return 1
    done
    return 1
}

find_compiler()
{
    if [ -n "${CXX:-}" ]; then
        find_program "$CXX"
    else
        find_program "g++$1"
    fi
}

# The folders that the compiler searches, the user's own first; a plain guess where there is no compiler yet.
header_folders()
{
    local prefix
    for prefix in ${CMAKE_PREFIX_PATH//[:;]/ } ${HDF5_ROOT:-}; do
        say "$prefix/include"
    done
    if command -v "${CXX:-g++}" >/dev/null; then
        "${CXX:-g++}" -E -x c++ -v /dev/null 2>&1 >/dev/null |
            sed -n '/search starts here/,/End of search/{/^ /s/^ *//p}'
    else
        printf '%s\n' ${CPATH//:/ } /usr/local/include /usr/include "/usr/include/$(uname -m)-linux-gnu"
    fi
}

find_header()
{
    local folder file
    while read -r folder; do
        for file in ${1//|/ }; do
            if [ -e "$folder/$file" ]; then
                say "$folder/$file"
                return 0
            fi
        done
    done < <(CPATH=${CPATH:-} CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH:-} header_folders)
    return 1
}

find_python_modules()
{
    command -v "$PYTHON" >/dev/null && "$PYTHON" -c "import $1" 2>/dev/null && say "$(command -v "$PYTHON") $(version_of "$PYTHON")"
}

find_clang_runtime()
{
    local path
    path=$(clang++-14 -print-file-name="$1" 2>/dev/null) || return 1
    [ -e "$path" ] || path=$(clang++-14 -print-resource-dir)/lib/linux/$1
    [ -e "$path" ] && say "$path"
}

find_need()
{
    case $1 in
    compiler*) find_compiler "${1#compiler}" ;;
    program:*) find_program "${1#program:}" ;;
    header:*) find_header "${1#header:}" ;;
    python:*) find_python_modules "${1#python:}" ;;
    clang-runtime:*) find_clang_runtime "${1#clang-runtime:}" ;;
    *) die "needs.txt: unknown kind '$1'" ;;
    esac
}
