"""Normal forms against Hugging Face's tokenizers, which decide what ids a text has."""

import random
import subprocess
import sys

import pytest
from text_probe import normalized
from tokenizers import normalizers

FORMS = ["NFC", "NFD", "NFKC", "NFKD"]
INTERESTING = [
    *range(0x41, 0x5B), *range(0xC0, 0x180), *range(0x300, 0x370), *range(0x591, 0x5C8), *range(0x622, 0x660),
    *range(0x915, 0x960), 0x9BE, 0x9C7, 0x9D7, 0xB47, 0xB56, 0x1100, 0x1112, 0x1113, *range(0x1161, 0x1176), 0x11A7, 0x11A8, 0x11C2,
    0x11C3, *range(0xAC00, 0xAC40), 0xD7A3, 0x1E0B, 0x1E69, 0x1E9B, 0x2126, 0x212B, 0x2260, 0x3099, 0x304B, 0xF900, 0xFB01, 0xFB2C,
    0xFDFA, 0x1D15E, 0x1D165, 0x1D16E, 0x11099, 0x110BA, 0x2F800, 0x1133B, 0x10D24, 0x32FF, 0x20, 0x3000, 0xFF21, 0xBD,
]


@pytest.mark.parametrize("form", FORMS)
def test_every_character_and_marks_in_any_order(tools, form):
    reference = getattr(normalizers, form)()
    every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    draw = random.Random(7)
    # Between two marks and a starter each character shows its class; several together what composes with what.
    texts = ["a" + c + "\u0334" for c in every[:0x32000]] + ["".join(every[i : i + 8]) for i in range(0, len(every), 8)]
    texts += ["".join(chr(draw.choice(INTERESTING)) for _ in range(draw.randint(1, 12))) for _ in range(20_000)]
    texts += ["", "plain", "e" + "\u0301\u0323" * 3000, "\u0301"]
    found = normalized(tools, [text.encode() for text in texts], form)
    assert len(found) == len(texts)
    for text, got in zip(texts, found):
        assert got.decode() == reference.normalize_str(text), ascii(text)


def test_tables_are_what_the_script_writes(source_dir):
    subprocess.run([sys.executable, source_dir / "scripts/normalize_tables.py", "--check",
                    source_dir / "libcommon/io/tokenizer/unicode_normalize_data.inc"], check=True)
