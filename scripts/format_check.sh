#!/usr/bin/env bash
# format_check.sh: names the files that clang-format would change.
set -eu -o pipefail
. "$(dirname "$0")/common.sh"
format=$(command -v clang-format-14 || command -v clang-format) || die "clang-format is missing (Debian: clang-format-14)"
cd "$SOURCE_DIR"
bad=0
while read -r file; do
    if ! "$format" --dry-run --Werror "$file" 2>/dev/null; then
        say "  differs  $file"
        bad=$((bad + 1))
    fi
done < <(git ls-files '*.cpp' '*.hpp' '*.cu')
say "$bad files differ from .clang-format"
[ "$bad" = 0 ]
