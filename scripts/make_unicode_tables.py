#!/usr/bin/env python3
"""Writes libcommon/io/tokenizer/unicode_data.cpp from `unicodedata2` (pinned in requirements/oracles.txt).

    build/oracles/bin/python scripts/make_unicode_tables.py [--check]

Classes follow the Unicode version of unicodedata2, which is the one of the pattern engines in HF tokenizers and tiktoken. Normal
forms have tables of their own (normalize_tables.py).
"""

import sys
from pathlib import Path

import unicodedata2 as ucd

FOLDER = Path(__file__).resolve().parents[1] / "libcommon/io/tokenizer"

# Class numbers of unicode.hpp.
OTHER, LOWER, UPPER, LETTER, MARK, NUMBER, PUNCT, SYMBOL, SPACE, NEWLINE = range(10)
HAN, WORD = 0x10, 0x20

# White_Space of PropList.txt without CR and LF.
SPACES = {0x09, 0x0B, 0x0C, 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
# Script Han of Scripts.txt, Unicode 16.
HAN_RANGES = [(0x2E80, 0x2E99), (0x2E9B, 0x2EF3), (0x2F00, 0x2FD5), (0x3005, 0x3005), (0x3007, 0x3007), (0x3021, 0x3029),
              (0x3038, 0x303B), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFA6D), (0xFA70, 0xFAD9), (0x16FE2, 0x16FE3),
              (0x16FF0, 0x16FF1), (0x20000, 0x2A6DF), (0x2A700, 0x2B739), (0x2B740, 0x2B81D), (0x2B820, 0x2CEA1),
              (0x2CEB0, 0x2EBE0), (0x2EBF0, 0x2EE5D), (0x2F800, 0x2FA1D), (0x30000, 0x3134A), (0x31350, 0x323AF)]
# Other_Alphabetic that is neither letter nor mark (PropList.txt), and Join_Control.
WORD_EXTRA = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A), *range(0x1F170, 0x1F18A), 0x200C, 0x200D}
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


def write_or_check(text, path):
    """SCRIPT [--check]: writes the text, or ends where the file is another one."""
    if "--check" not in sys.argv[1:]:
        path.write_text(text, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        sys.exit(f"{path} is not what scripts/{Path(sys.argv[0]).name} writes. run it again")


def main():
    han = {c for first, last in HAN_RANGES for c in range(first, last + 1)}
    values = {}
    for c in ALL:
        values[c] = class_of(c) | (HAN if c in han else 0) | (WORD if is_word(c) else 0)
    classes = HEAD + f'const char* const version = "{ucd.unidata_version}";\n\n'
    classes += "// code point << 8 | properties, where they change\n"
    classes += array("properties", (hex(c << 8 | value) for c, value in ranges(values)))
    write_or_check(classes + TAIL, FOLDER / "unicode_data.cpp")


if __name__ == "__main__":
    main()
