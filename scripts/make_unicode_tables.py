#!/usr/bin/env python3
"""Writes libcommon/io/tokenizer/unicode_data.cpp and nfc_data.cpp from `unicodedata2` (pinned in requirements/oracles.txt).

    build/oracles/bin/python scripts/make_unicode_tables.py [--check]

Classes follow the Unicode version of unicodedata2, which is the one of the pattern engines in HF tokenizers and tiktoken.
Normalization follows Unicode 9.0, which is what the normalizers of HF tokenizers know: a character that was assigned later
has no combining class and no composition there. LATER lists those; the standard never changes the others.
"""

import sys
from pathlib import Path

import unicodedata2 as ucd

FOLDER = Path(__file__).resolve().parents[1] / "libcommon/io/tokenizer"

# Class numbers of unicode.hpp.
OTHER, LOWER, UPPER, LETTER, MARK, NUMBER, PUNCT, SYMBOL, SPACE, NEWLINE = range(10)
HAN, WORD, NFC_CHECK = 0x10, 0x20, 0x40

# White_Space of PropList.txt without CR and LF.
SPACES = {0x09, 0x0B, 0x0C, 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
# Script Han of Scripts.txt, Unicode 16.
HAN_RANGES = [(0x2E80, 0x2E99), (0x2E9B, 0x2EF3), (0x2F00, 0x2FD5), (0x3005, 0x3005), (0x3007, 0x3007), (0x3021, 0x3029),
              (0x3038, 0x303B), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFA6D), (0xFA70, 0xFAD9), (0x16FE2, 0x16FE3),
              (0x16FF0, 0x16FF1), (0x20000, 0x2A6DF), (0x2A700, 0x2B739), (0x2B740, 0x2B81D), (0x2B820, 0x2CEA1),
              (0x2CEB0, 0x2EBE0), (0x2EBF0, 0x2EE5D), (0x2F800, 0x2FA1D), (0x30000, 0x3134A), (0x31350, 0x323AF)]
# Other_Alphabetic that is neither letter nor mark (PropList.txt), and Join_Control.
WORD_EXTRA = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A), *range(0x1F170, 0x1F18A), 0x200C, 0x200D}
# Characters with a combining class or a composition that were assigned after Unicode 9.0.
LATER_RANGES = """7fd 897-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1ace 1df6-1dfa a82c 105c9 105e4 10d24-10d27 10d69-10d6d
10eab-10eac 10efd-10eff 10f46-10f50 10f82-10f85 11070 1133b 11383 11385 1138e 11391 113c5 113c7-113c8 113ce-113d0 1145e
11839-1183a 11938 1193d-1193e 11943 119e0 11a34 11a47 11a99 11d42 11d44-11d45 11d97 11f41-11f42 16121-16128 1612f 16d68-16d6a
16ff0-16ff1 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef"""
COMPOSES = 1 << 31
HANGUL_V_T = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}


def numbers(text):
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


LATER = set(numbers(LATER_RANGES))
ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def class_of(c):
    if c in (0x0A, 0x0D):
        return NEWLINE
    if c in SPACES:
        return SPACE
    category = ucd.category(chr(c))
    named = {"Ll": LOWER, "Lu": UPPER, "Lt": UPPER, "Lm": LETTER, "Lo": LETTER}
    by_letter = {"M": MARK, "N": NUMBER, "P": PUNCT, "S": SYMBOL}
    return named.get(category) or by_letter.get(category[0], OTHER)


def is_word(c):
    category = ucd.category(chr(c))
    return category[0] in "LM" or category in ("Nd", "Nl", "Pc") or c in WORD_EXTRA


def decomposition(c):
    text = ucd.decomposition(chr(c))
    if not text or text.startswith("<") or c in LATER:
        return ()
    return tuple(int(part, 16) for part in text.split())


def combining(c):
    return 0 if c in LATER else ucd.combining(chr(c))


def compositions():
    """(first, second, composed) of the pairs that NFC joins."""
    for c in ALL:
        parts = decomposition(c)
        if len(parts) == 2 and ucd.normalize("NFC", chr(c)) == chr(c):
            yield (*parts, c)


def ranges(values):
    """(first code point, value) wherever the value changes."""
    result, last = [], None
    for c in range(0x110000):
        value = values.get(c, 0)
        if value != last:
            result.append((c, value))
            last = value
    return result


def rows(items):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > 120:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*lines, line])


def array(name, items):
    items = list(items)
    return f"const std::uint32_t {name}[] = {{\n{rows(items)}\n}};\nconst std::size_t {name}_size = {len(items)};\n"


HEAD = f"""// Made by scripts/make_unicode_tables.py from unicodedata2, Unicode {ucd.unidata_version}. Not to be edited.
// clang-format off
#include "io/tokenizer/unicode_data.hpp"

namespace plimsoll::unicode_data
{{

"""
TAIL = "\n}  // namespace plimsoll::unicode_data\n"


def main():
    pairs = list(compositions())
    seconds = {second for _, second, _ in pairs} | HANGUL_V_T
    han = {c for first, last in HAN_RANGES for c in range(first, last + 1)}
    values = {}
    for c in ALL:
        check = combining(c) or c in seconds or (c not in LATER and ucd.normalize("NFC", chr(c)) != chr(c))
        values[c] = class_of(c) | (HAN if c in han else 0) | (WORD if is_word(c) else 0) | (NFC_CHECK if check else 0)
    classes = HEAD + f'const char* const version = "{ucd.unidata_version}";\n\n'
    classes += "// code point << 8 | properties, where they change\n"
    classes += array("properties", (hex(c << 8 | value) for c, value in ranges(values)))
    nfc = HEAD + "// code point << 8 | combining class, where it changes\n"
    nfc += array("combining", (hex(c << 8 | v) for c, v in ranges({c: combining(c) for c in ALL})))
    composed = {c for _, _, c in pairs}
    parts = [(c | (COMPOSES if c in composed else 0), *p, 0) for c in ALL if (p := decomposition(c))]
    nfc += "\n// code point (| 1 << 31: the two compose again), first, second (0: none)\n"
    nfc += array("decompositions", (hex(value) for part in parts for value in part[:3]))
    stale = []
    for name, text in (("unicode_data.cpp", classes + TAIL), ("nfc_data.cpp", nfc + TAIL)):
        path = FOLDER / name
        if "--check" in sys.argv:
            stale += [name] if not path.exists() or path.read_text() != text else []
        else:
            path.write_text(text)
    if stale:
        sys.exit(f"not what scripts/make_unicode_tables.py writes: {', '.join(stale)}")


main()
