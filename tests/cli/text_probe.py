"""Many texts at once through plimsoll-text-probe, for the tests that compare with other libraries."""

import struct
import subprocess


def probe(tools, texts, *arguments):
    """The answers to `texts` (bytes each) as bytes."""
    request = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    done = subprocess.run([str(tools / "plimsoll-text-probe"), *map(str, arguments)], input=request, capture_output=True,
                          check=False, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def normalized(tools, texts, form):
    answer, at, found = probe(tools, texts, "normalize", form), 0, []
    while at < len(answer):
        (size,) = struct.unpack_from("<I", answer, at)
        found.append(answer[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def encoded(tools, texts, tokenizer, policy="text"):
    """[(ids, decoded bytes), ...] of `texts`."""
    answer, at, found = probe(tools, texts, "encode", tokenizer, policy), 0, []
    while at < len(answer):
        (num,) = struct.unpack_from("<I", answer, at)
        ids = list(struct.unpack_from(f"<{num}I", answer, at + 4))
        at += 4 + 4 * num
        (size,) = struct.unpack_from("<I", answer, at)
        found.append((ids, answer[at + 4 : at + 4 + size]))
        at += 4 + size
    return found
