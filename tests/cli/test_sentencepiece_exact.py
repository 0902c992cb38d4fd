"""Ids against the sentencepiece wheel, for models of all kinds. PLIMSOLL_FUZZ_CASES=1000000 for a long run."""

import os
import random
import struct
import subprocess

import pytest
import sentencepiece
from spm_models import BPE, CHAR, CONTROL, NORMAL, UNIGRAM, UNUSED, USER_DEFINED, WORD, model, training_text
from text_probe import encoded

CASES = int(os.environ.get("PLIMSOLL_FUZZ_CASES", "100000"))

TRAINED = {
    "bpe": {"model_type": "bpe", "vocab_size": 1500},
    "llama": {"model_type": "bpe", "vocab_size": 1500, "byte_fallback": True, "split_digits": True,
              "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True},
    "across": {"model_type": "bpe", "vocab_size": 900, "split_by_whitespace": False, "add_dummy_prefix": False,
               "normalization_rule_name": "nmt_nfkc_cf"},
    "suffix": {"model_type": "bpe", "vocab_size": 900, "treat_whitespace_as_suffix": True, "character_coverage": 0.98,
               "user_defined_symbols": ["ab", "xa", "▁▁▁", "<user>"]},
    "unigram": {"model_type": "unigram", "vocab_size": 1200},
    "unibyte": {"model_type": "unigram", "vocab_size": 1200, "byte_fallback": True, "normalization_rule_name": "nfkc_cf",
                "user_defined_symbols": ["the", "▁of", "<user>"]},
    "char": {"model_type": "char", "vocab_size": 300, "character_coverage": 0.98, "user_defined_symbols": ["the", "<user>"]},
    "word": {"model_type": "word", "vocab_size": 600},
}

TRAPS = ["", " ", "   ", "a", " a  b ", "a\u3000b", "a▁b", "▁", "▁▁ ▁", "\0a\0", "a\n\n b\t", "\u200d\u00ad\ufeff", "ＡＢＣ ½ ﬁ Å e\u0301 \u0301",
         "A\u030a\u0323", "<s></s><unk> <s>", "<0x41>", "abxabxab", "<user>the<user>", "a" * 5000, " " * 5000, "中" * 3000, "\n" * 3000,
         "▁" * 3000, "ab" * 3000, "=-" * 2000, "日本語" * 700, "\U0001F600" * 500, "9" * 3000, "e" + "\u0301" * 3000, "가각갂" * 300,
         "\u2028\u2029\u0085", "x" * 40 + " " + "y" * 36 + " " + "z" * 35]


@pytest.fixture(scope="module")
def text(source_dir):
    return training_text(source_dir)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("models")
    (folder / "text.txt").write_text(text)
    for name, options in TRAINED.items():
        sentencepiece.SentencePieceTrainer.train(input=str(folder / "text.txt"), model_prefix=str(folder / name), minloglevel=2,
                                                 num_threads=2, max_sentence_length=20000, **options)
    return folder


def compare(tools, path, texts, decode=True):
    wheel = sentencepiece.SentencePieceProcessor(model_file=str(path))
    found = encoded(tools, [text.encode() if isinstance(text, str) else text for text in texts], path)
    assert len(found) == len(texts)
    for text, (ids, decoded) in zip(texts, found):
        wanted = wheel.encode(text)
        assert ids == wanted, f"{path.name}: {ascii(text[:200])}"
        if decode:
            assert decoded == wheel.decode(ids).encode(), f"{path.name}: {ascii(text[:200])}"


@pytest.mark.parametrize("name", TRAINED)
def test_real_text_and_traps(tools, trained, text, name):
    draw = random.Random(3)
    pieces = [text[at : at + draw.choice([20, 300, 5000])] for at in (draw.randrange(len(text)) for _ in range(150))]
    broken = [b"\xff\xfe x", b"a\xc3", b"\xe2\x96", b"\xed\xa0\x80 z", b"\xf0\x9f\x98", b"ok \x80\x80 ok"]
    compare(tools, trained / f"{name}.model", [text[:60000], *pieces, *TRAPS, *broken])


@pytest.mark.parametrize("name", ["unigram", "unibyte"])
def test_sums_of_scores_far_into_a_text(tools, trained, text, name):
    """Rounding of the float sums decides between near ties; they start again below -100,000."""
    compare(tools, trained / f"{name}.model", [text * 2, "Host indirectness the responsible of\n" * 9000], decode=False)


def random_text(draw, atoms):
    return "".join(draw.choice(atoms) for _ in range(draw.randint(1, 14)))


@pytest.mark.parametrize("name", ["llama", "suffix", "unibyte", "across"])
def test_random_strings(tools, trained, name):
    draw = random.Random(name)
    atoms = [*"abxethosn 0159<>/=-_.\n\t", " ", " ", "  ", "the", "ab", "xa", "<user>", "</s>", "▁", "▁▁", "é", "e\u0301", "ß", "中", "日本",
             "ы", "\u3000", "ﬁ", "½", "\u200b", "\0", "\U0001F600", "가", "Å", " of"]
    compare(tools, trained / f"{name}.model", [random_text(draw, atoms) for _ in range(CASES // 8)], decode=False)


def random_model(draw):
    """A vocabulary over few characters, so that everything overlaps, with equal scores and all types of pieces."""
    kind = draw.choice([BPE, BPE, UNIGRAM, UNIGRAM, CHAR, WORD])
    letters = "abc▁é"
    texts = {draw.choice(letters) for _ in range(4)}
    texts |= {"".join(draw.choice(letters) for _ in range(draw.randint(1, 5))) for _ in range(draw.randint(3, 40))}
    types = [NORMAL] * 8 + [USER_DEFINED] * draw.randint(0, 1) + [UNUSED] * draw.choice([0, 0, 2])
    pieces = [(text, -draw.choice([1.0, 2.0, 2.0, 3.5, draw.random() * 9]), draw.choice(types)) for text in sorted(texts)]
    if not any(entry[2] == NORMAL for entry in pieces):
        pieces.append(("z", -1.0, NORMAL))
    return model(pieces, kind, draw.random() < 0.3, *(draw.random() < 0.5 for _ in range(4)))


def test_random_models(tools, tmp_path):
    draw = random.Random(11)
    models = max(CASES // 2 // 250, 1)
    for index in range(models):
        path = tmp_path / f"{index}.model"
        path.write_bytes(random_model(draw))
        compare(tools, path, [random_text(draw, ["a", "b", "c", "▁", " ", "é", "d", "ab", "  "]) for _ in range(250)], decode=False)
        path.unlink()


def test_control_pieces_in_text(tools, trained):
    path = trained / "llama.model"
    wheel = sentencepiece.SentencePieceProcessor(model_file=str(path))
    (found, _), = encoded(tools, [b"one</s>two <s>"], path, "match")
    assert found == wheel.encode("one") + [2] + wheel.encode("two ") + [1]
    done = subprocess.run([tools / "plimsoll-text-probe", "encode", path, "error"], input=struct.pack("<I", 6) + b"a </s>",
                          capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.decode().startswith("the text of special token '</s>' stands in the document")


def test_broken_files_are_refused(tools, trained, tmp_path):
    draw = random.Random(5)
    good = (trained / "unibyte.model").read_bytes()
    path = tmp_path / "broken.model"
    cases = [b"", b"\x0a", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\xff" * 100, good[:-1], b"\x0b", b"plain text", good[1:]]
    cases += [good[: draw.randrange(len(good))] for _ in range(40)]
    for _ in range(80):
        flipped = bytearray(good)
        for _ in range(draw.choice([1, 1, 10])):
            flipped[draw.randrange(len(good))] ^= 1 << draw.randrange(8)
        cases.append(bytes(flipped))
    charsmap = bytearray(good)
    start = good.index(b"nfkc_cf") + 20
    for _ in range(40):
        for _ in range(30):
            charsmap[start + draw.randrange(100_000)] ^= 1 << draw.randrange(8)
        cases.append(bytes(charsmap))
    request = b"".join(struct.pack("<I", len(t)) + t for t in (b"some text \xc3\xa9\xef\xbc\xa1 \xff", "ａﬁ 中".encode()))
    for case in cases:
        path.write_bytes(case)
        done = subprocess.run([tools / "plimsoll-text-probe", "encode", path, "text"], input=request, capture_output=True,
                              check=False, timeout=20)
        assert done.returncode in (0, 2, 93), (done.returncode, done.stderr)
        if done.returncode:
            assert done.stderr.startswith(b"broken.model"), done.stderr
