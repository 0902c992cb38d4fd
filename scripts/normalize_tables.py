#!/usr/bin/env python3
"""normalize_tables.py [--check] FILE: writes libcommon/io/tokenizer/unicode_normalize_data.inc, or compares it.

Source: unicodedata2 16.0.0, without the characters that Unicode 10 to 16 added (NEWER, from DerivedAge.txt): Hugging Face's
tokenizers normalises with the tables of Unicode 9.0. Unicode never changes the normal form of a character once it is there,
so what remains is the 9.0 data. Layout: see the comment that is written into the file.
"""

import sys
from pathlib import Path

import unicodedata2 as ucd
from make_unicode_tables import rows, write_or_check

# Characters added after Unicode 9.0 that decompose or have a combining class.
NEWER = """07FD 0897-089F 08CA-08D3 09FE 0C3C 0D3B-0D3C 0EBA 1715 1ABF-1ACE 1DF6-1DFA 32FF A7F2-A7F4 A82C AB69 105C9 105E4
10781-10785 10787-107B0 107B2-107BA 10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFD-10EFF 10F46-10F50 10F82-10F85 11070 1133B 11383
11385 1138E 11391 113C5 113C7-113C8 113CE-113D0 1145E 11839-1183A 11938 1193D-1193E 11943 119E0 11A34 11A47 11A99 11D42
11D44-11D45 11D97 11F41-11F42 16121-16128 1612F 16D68-16D6A 16FF0-16FF1 1CCD6-1CCF9 1E030-1E06D 1E08F 1E130-1E136 1E2AE
1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1F16C 1FBF0-1FBF9"""


def newer_characters():
    found = set()
    for part in NEWER.split():
        first, _, last = part.partition("-")
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    return found


def generate():
    newer = newer_characters()
    assigned = [c for c in range(0x110000) if c not in newer and not 0xD800 <= c < 0xE000]
    decompositions, excluded = [], []
    for c in assigned:
        words = ucd.decomposition(chr(c)).split()
        if not words:
            continue
        compatible = words[0].startswith("<")
        target = [int(word, 16) for word in words[compatible:]]
        decompositions += [c << 6 | compatible << 5 | len(target), *target]
        if not compatible and ucd.normalize("NFC", chr(c)) != chr(c):
            excluded.append(c)
    classes = []
    for c in [*assigned, 0x110000]:
        value = ucd.combining(chr(c)) if c < 0x110000 else 0
        if classes and classes[-1][2] == value and classes[-1][1] == c - 1:
            classes[-1][1] = c
        elif value:
            classes.append([c, c, value])
    ranges = [number for first, last, value in classes for number in (first, last, value)]
    return f"""// Written by scripts/normalize_tables.py from unicodedata2 {ucd.unidata_version}, restricted to Unicode 9.0.

// For each character that decomposes: character << 6 | (compatibility only) << 5 | length, then its one-step decomposition.
constexpr std::uint32_t normalize_decompositions[] = {{
{rows(map(str, decompositions))}
}};

// Canonical decompositions that are never composed again.
constexpr std::uint32_t normalize_excluded[] = {{
{rows(map(str, excluded))}
}};

// First character, last character, canonical combining class (not 0).
constexpr std::uint32_t normalize_classes[] = {{
{rows(map(str, ranges))}
}};
"""


if __name__ == "__main__":
    write_or_check(generate(), Path(sys.argv[-1]))
