#!/usr/bin/env python3
"""hf_character_tables.py [--check] FILE: writes libcommon/io/tokenizer/hf_characters.inc, or compares it.

What steps of Hugging Face's tokenizers do with single characters, each of the Unicode version of the crate that does it: asked
of the `tokenizers` wheel, a character at a time. Grapheme breaks are Unicode 16's, from `regex` without what came later.
"""

import sys
from pathlib import Path

import regex
import unicodedata2 as ucd
from make_unicode_tables import ALL, ranges, rows, write_or_check
from tokenizers import normalizers, pre_tokenizers

BREAKS = ["Other", "CR", "LF", "Control", "Extend", "ZWJ", "Regional_Indicator", "Prepend", "SpacingMark", "L", "V", "T", "LV", "LVT"]
PICTOGRAPH, CONSONANT, EXTEND, LINKER = 16, 32, 64, 96


def members(prop):
    pattern = regex.compile(r"\p{%s}" % prop)
    return {c for c in ALL if pattern.match(chr(c))}


def grapheme_values():
    values = {}
    later = {c for c in ALL if ucd.category(chr(c)) == "Cn"} - members("Cn")
    for number, name in enumerate(BREAKS[1:], 1):
        values.update((c, number) for c in members(f"GCB={name}") - later)
    for value, prop in ((PICTOGRAPH, "Extended_Pictographic"), (CONSONANT, "InCB=Consonant"), (EXTEND, "InCB=Extend"), (LINKER, "InCB=Linker")):
        for c in members(prop) - later:
            values[c] = values.get(c, 0) | value
    return values


def changes(values):
    return map(hex, (c << 8 | value for c, value in ranges(values)))


def one_by_one(normalizer):
    """What becomes of each character, in one call."""
    return normalizer.normalize_str("\n\t\n".join(map(chr, ALL))).split("\n\t\n")


def lower_cases():
    """Runs [first, last, step, distance] of characters whose lower case is one character."""
    runs = []
    for c, small in zip(ALL, one_by_one(normalizers.Lowercase())):
        if len(small) != 1 or small == chr(c):
            continue
        distance = ord(small) - c
        for step in (1, 2):
            if runs and runs[-1][3] == distance and runs[-1][1] == c - step and (runs[-1][2] in (0, step)):
                runs[-1][1:3] = c, step
                break
        else:
            runs.append([c, c, 0, distance])
    return [str(number) for first, last, step, distance in runs for number in (first, last, step or 1, distance)]


def generate():
    punctuation = pre_tokenizers.Punctuation()
    marks = {c: 1 for c, rest in zip(ALL, one_by_one(normalizers.StripAccents())) if not rest}
    candidates = [c for c in ALL if ucd.category(chr(c)) not in ("Lo", "Cn", "Co")]
    signs = {c: 1 for c in candidates if len(punctuation.pre_tokenize_str("a" + chr(c))) == 2}
    return f"""// Written by scripts/hf_character_tables.py from the tokenizers wheel and regex.

// Grapheme_Cluster_Break in the low 4 bits, then Extended_Pictographic 16, Indic_Conjunct_Break 32, 64, 96: code point << 8 | value,
// where it changes.
constexpr std::uint32_t hf_grapheme_breaks[] = {{
{rows(changes(grapheme_values()))}
}};

// Combining marks of StripAccents, in the same way.
constexpr std::uint32_t hf_marks[] = {{
{rows(changes(marks))}
}};

// What Punctuation takes for punctuation.
constexpr std::uint32_t hf_punctuation[] = {{
{rows(changes(signs))}
}};

// Lowercase: first, last, step, distance to the lower case.
constexpr std::int32_t hf_lower[] = {{
{rows(lower_cases())}
}};
"""


if __name__ == "__main__":
    write_or_check(generate(), Path(sys.argv[-1]))
