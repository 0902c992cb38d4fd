"""sentencepiece models for tests: trained on this repository's text, and written by hand, field by field."""

import struct

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE, WORD, CHAR = 1, 2, 3, 4


def varint(value):
    out = b""
    while True:
        value, low = value >> 7, value & 127
        out += bytes([low | 128 if value else low])
        if not value:
            return out


def number(field, value):
    return varint(field << 3) + varint(value)


def blob(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def piece(text, score=0.0, kind=NORMAL):
    return blob(1, blob(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + number(3, kind))


def model(pieces, kind=BPE, byte_fallback=False, suffix=False, dummy=True, extra=True, escape=True, charsmap=b""):
    start = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    start += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)] if byte_fallback else []
    trainer = number(3, kind) + number(24, suffix) + number(35, byte_fallback)
    rules = blob(2, charsmap) + number(3, dummy) + number(4, extra) + number(5, escape)
    return b"".join(piece(*entry) for entry in start + pieces) + blob(2, trainer) + blob(3, rules)


def training_text(source_dir):
    """English, code and some other writing, always the same kind of text."""
    parts = [path.read_text() for path in sorted([*source_dir.glob("docs/*.md"), *source_dir.glob("libcommon/io/*.?pp")])]
    others = ["Les élèves français étudient à l'école primaire.", "Straße, Größe und Übermut tun selten gut.",
              "日本語の文章には空白がありません。東京都は日本の首都です。", "敏捷的棕色狐狸跳过了懒狗。中文没有空格。",
              "Съешь же ещё этих мягких французских булок, да выпей чаю.", "빠른 갈색 여우가 게으른 개를 뛰어넘는다.",
              "नमस्ते दुनिया, यह एक परीक्षण है।", "０１２３ ﬁne ½ ＡＢＣ\u3000x 12345 3.14159", "    indented\tby\ttabs"]
    return "\n".join(line for part in parts for line in part.splitlines() if line) + "\n" + "\n".join(others * 40)


def fields(data):
    """(number, bytes or None) of the fields of a protobuf message."""
    at = 0

    def read_varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = read_varint()
        size = {0: 0, 1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            read_varint()
        elif key & 7 == 2:
            size = read_varint()
        yield key >> 3, data[at : at + size] if key & 7 == 2 else None
        at += size


def charsmap_of(model_bytes):
    """The precompiled_charsmap of a model file."""
    rules = next(data for number, data in fields(model_bytes) if number == 3)
    return next(data for number, data in fields(rules) if number == 2)
