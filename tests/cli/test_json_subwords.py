"""Hugging Face conversions of sentencepiece models: ids against `tokenizers`."""

import random
import struct
import subprocess

import pytest
from spm_models import training_text
from text_probe import encoded
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
KINDS = {
    "llama": {"normalizer": LLAMA, "fuse": True, "bytes": True},
    "unk": {"normalizer": LLAMA, "fuse": True, "bytes": False},
    "nofuse": {"normalizer": LLAMA, "fuse": False, "bytes": False},
    "gemma": {"normalizer": normalizers.Replace(" ", "▁"), "fuse": True, "bytes": True,
              "pre": pre_tokenizers.Split(" ", "merged_with_previous")},
    "nfkc": {"normalizer": normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" ", "▁")]), "fuse": True, "bytes": True},
    "first": {"pre": pre_tokenizers.Metaspace(prepend_scheme="first"), "fuse": True, "bytes": True},
    "whole": {"pre": pre_tokenizers.Metaspace(prepend_scheme="always", split=False), "fuse": True, "bytes": True},
    "never": {"pre": pre_tokenizers.Metaspace(prepend_scheme="never"), "fuse": False, "bytes": False},
    "unigram": {"pre": pre_tokenizers.Metaspace(), "unigram": True},
    "unigram_whole": {"pre": pre_tokenizers.Metaspace(split=False), "unigram": True},
}
TRAPS = ["", " ", "   ", "a", " a  b ", "a▁b", "▁▁ ▁", "\0a\n\n", "ﬁ ½ e\u0301", "<s>x</s> y<unk>", "a<sep>b <sep> c", "中" * 300, "a" * 3000,
         " " * 3000, "\U0001F600 x", "<0x41>", "Ωж" * 50]


def make(kind, text):
    options = KINDS[kind]
    lines = text.split("\n")
    special = ["<unk>", "<s>", "</s>"]
    if options.get("unigram"):
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(vocab_size=1200, special_tokens=special, unk_token="<unk>", show_progress=False)
    else:
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=options["fuse"], byte_fallback=options["bytes"]))
        trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=special + (BYTES if options["bytes"] else []), limit_alphabet=90,
                                      show_progress=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # training by words
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    if "normalizer" in options:
        tokenizer.normalizer = options["normalizer"]
    tokenizer.pre_tokenizer = options.get("pre")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def plain(tokenizer, folder, kind):
    """Without the byte tokens as added tokens, as converted files have them, and with one more token that is not special."""
    import json
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    path = folder / f"{kind}.json"
    path.write_text(json.dumps(data))
    again = Tokenizer.from_file(str(path))
    again.add_tokens([AddedToken("<sep>", normalized=False)])
    again.save(str(path))
    return path, again


@pytest.mark.parametrize("kind", KINDS)
def test_same_ids(tools, source_dir, tmp_path, kind):
    text = training_text(source_dir)
    path, reference = plain(make(kind, text), tmp_path, kind)
    draw = random.Random(5)
    texts = [text[at : at + draw.choice([10, 100, 2000])] for at in (draw.randrange(len(text)) for _ in range(200))] + TRAPS + [text[:50000]]
    atoms = [*"abxethos 0159<>/=-_.\n\t", " ", "  ", "the", "</s>", "<sep>", "▁", "é", "e\u0301", "中", "ы", "\u3000", "ﬁ", "\0", "\U0001F600"]
    texts += ["".join(draw.choice(atoms) for _ in range(draw.randint(1, 14))) for _ in range(4000)]
    found = encoded(tools, [text.encode() for text in texts], path, "match")
    for text, (ids, _) in zip(texts, found):
        assert ids == reference.encode(text, add_special_tokens=False).ids, ascii(text[:200])
    (ids, decoded), = encoded(tools, ["one two, x = 1;".encode()], path)
    assert decoded.decode() == "one two, x = 1;"


def refusal(tools, path):
    done = subprocess.run([tools / "plimsoll-text-probe", "encode", path, "text"], input=struct.pack("<I", 1) + b"a", capture_output=True,
                          check=False)
    return done.returncode, done.stderr.decode()


def test_what_is_not_built_is_refused_by_name(tools, tmp_path):
    tokenizer = Tokenizer(models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    path = tmp_path / "t.json"
    tokenizer.save(str(path))
    assert refusal(tools, path) == (2, f"{path}: normalizer BertNormalizer is not supported\n")
    tokenizer.normalizer = LLAMA
    tokenizer.pre_tokenizer = pre_tokenizers.UnicodeScripts()
    tokenizer.save(str(path))
    assert refusal(tools, path) == (2, f"{path}: pre_tokenizer UnicodeScripts is not supported here\n")
