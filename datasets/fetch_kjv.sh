#!/bin/sh
# Writes OUT_DIR/kjv.jsonl: the King James Bible as Debian's package bible-kjv has it, a document for each of its 1,189
# chapters, a verse a line, without the references. Nothing is downloaded; the text is not part of this repository.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: fetch_kjv.sh OUT_DIR" >&2
    exit 2
fi
if ! command -v bible > /dev/null; then
    echo "fetch_kjv.sh: no program 'bible'. install the Debian package bible-kjv" >&2
    exit 1
fi

out=$1
expected=cd45f0c9cedab8e4439bd6486c8952c77cc8b0ecc5d1f6ae3513f2039f47229d
mkdir -p "$out"
work=$(mktemp -d "$out/.kjv.XXXXXX")
trap 'rm -rf "$work"' EXIT

bible -f gen1:1-rev22:21 > "$work/verses.txt"
found=$(sha256sum "$work/verses.txt" | cut -d' ' -f1)
if [ "$found" != "$expected" ]; then
    echo "fetch_kjv.sh: another edition than the one tested (sha256 $found). figures of the docs may differ" >&2
fi

# "Ge1:1 In the beginning ...": book, chapter and verse, then the text. The text holds no quotes and no backslashes.
awk '
function finish() { if (chapter != "") printf "{\"id\":\"%s\",\"text\":\"%s\"}\n", chapter, text }
{
    reference = $1
    verse = substr($0, length(reference) + 2)
    sub(/:.*/, "", reference)
    gsub(/\\/, "\\\\", verse)
    gsub(/"/, "\\\"", verse)
    if (reference != chapter) { finish(); chapter = reference; text = verse }
    else text = text "\\n" verse
}
END { finish() }
' "$work/verses.txt" > "$work/kjv.jsonl"

mv "$work/kjv.jsonl" "$out/kjv.jsonl"
echo "$out/kjv.jsonl: $(wc -l < "$out/kjv.jsonl") documents, $(wc -c < "$out/kjv.jsonl") bytes"
