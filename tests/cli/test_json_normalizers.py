"""Normalizers and pre_tokenizers of Hugging Face's conversions of sentencepiece models (T5, XLM-R, ALBERT, XLNet, DeBERTa, Pegasus,
NLLB, ...): ids against `tokenizers`, with a model that shows each byte of the normalised text, one that shows where pieces end, and
trained ones. PLIMSOLL_FUZZ_CASES=1000000 for a long run."""

import json
import os
import random
import subprocess
import sys

import pytest
import sentencepiece
from spm_models import charsmap_of, training_text
from test_json_subwords import refusal
from text_probe import encoded
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CASES = int(os.environ.get("PLIMSOLL_FUZZ_CASES", "500"))
RULES = ["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf"]

N, P = normalizers, pre_tokenizers
SPACES, LOW = N.Replace(Regex(" {2,}"), " "), N.Lowercase()
QUOTES = [N.Replace("``", '"'), N.Replace("''", '"')]
WORDS = P.Sequence([P.WhitespaceSplit(), P.Metaspace()])
DEBERTA = [N.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), N.NFC(), N.Strip(left=False, right=True)]
SEAMLESS = [N.Replace(Regex(r"[\n\r\t]"), " "), N.NFKC(), N.Strip(left=False, right=True), N.Replace(Regex(r" +▁"), "▁"),
            N.Replace(Regex(r"^▁+$"), ""), N.Replace(Regex(" {2,}"), "▁")]
PROTO = [N.Replace(Regex(r"\A +| +\z"), ""), SPACES, N.Replace(" ", "▁")]
FIRST = P.Metaspace(prepend_scheme="first")

# rule of the charsmap (None: no charsmap), steps ("charsmap" stands for it), pre_tokenizer
KINDS = {
    "t5": ("nmt_nfkc", ["charsmap", N.Strip(left=False, right=True), N.Replace(Regex(" {2,}"), "▁")], P.Metaspace()),
    "t5_first": ("nmt_nfkc", ["charsmap", N.Strip(left=False, right=True), N.Replace(Regex(" {2,}"), "▁")], FIRST),
    "xlmr": ("nmt_nfkc", ["charsmap"], WORDS),
    "mbart": ("nfkc", ["charsmap", SPACES], P.Metaspace()),
    "folded": ("nmt_nfkc_cf", ["charsmap", SPACES], P.Metaspace()),
    "folded_whole": ("nfkc_cf", ["charsmap"], P.Metaspace(prepend_scheme="first", split=False)),
    "albert": ("nmt_nfkc", [*QUOTES, N.NFKD(), N.StripAccents(), LOW, "charsmap", SPACES], P.Metaspace()),
    "xlnet_first": ("nmt_nfkc", [*QUOTES, N.NFKD(), N.StripAccents(), "charsmap"], P.Sequence([P.WhitespaceSplit(), FIRST])),
    "rembert": ("nfkc", [*QUOTES, SPACES, "charsmap"], P.Metaspace(prepend_scheme="never")),
    "deberta": (None, [LOW, *DEBERTA], P.Sequence([P.Punctuation("isolated"), P.Metaspace()])),
    "deberta_first": (None, DEBERTA, P.Sequence([P.Punctuation("isolated"), FIRST])),
    "seamless": (None, SEAMLESS, FIRST),
    "proto": ("nmt_nfkc", ["charsmap", *PROTO, N.Replace(Regex(r"\A▁"), "▁▁")],
              P.Sequence([P.Metaspace(split=False), P.Split(Regex("the|<user>"), "isolated")])),
    "proto_first": ("nmt_nfkc", ["charsmap", *PROTO], P.Metaspace(prepend_scheme="first", split=False)),
    "moshi": ("nfkc", ["charsmap", N.Replace(" ", "▁")], P.Metaspace(prepend_scheme="first", split=False)),
    "strip_first": (None, [N.Strip(), N.NFKD()], P.Sequence([P.Punctuation("contiguous"), FIRST])),
    "nmt": (None, [N.Nmt(), SPACES], P.Sequence([P.Whitespace(), P.Metaspace()])),
    "nmt_first": (None, [N.Nmt(), N.NFKC()], P.Sequence([P.Whitespace(), P.Digits(individual_digits=True), FIRST])),
    "omni": (None, [N.Strip(), SPACES], P.Split(" ", behavior="merged_with_next")),
    "helium": (None, [N.Prepend(" "), N.Replace(" ", "▁")], P.Split("\n", "contiguous")),
    "lines": (None, [N.Replace(Regex(r"^\s*[a-c]+?$|[^ab\n]+x|(?:b|\.)+"), "<>")], P.Sequence([P.Punctuation("removed"), FIRST])),
}
ATOMS = [*"abxAXethos 059<>/=-_.,!'`\n\t\r", " ", "  ", "the", "``", "</s>", "<sep>", "<user>", "▁", "é", "É", "e\u0301", "\u0301", "\u0323", "\u0344",
         "中", "ы", "Ы", "İ", "ẞ", "Σ", "ﾞ", "ｶﾞ", "\u3000", "\u00a0", "ﬁ", "…", "½", "⑴", "¨", "\0", "\x01", "\x7f", "\x85", "\u200b", "\u200d", "\ufeff",
         "\ufffd", "\u2028", "\U0001F600", "\U0001F469\u200d\U0001F469\u200d\U0001F467", "\U0001F1E9\U0001F1EA", "\U0001F1E9", "\u2764\ufe0f",
         "©", "☃", "\U0001F3FD", "\u1100", "\u1161", "\u11a8", "가", "각", "क", "\u094d", "ष", "\u093f", "\u0600", "\u0e33", "\u1ab0", "\u0897", "\u2e52"]
TRAPS = ["", " ", "   ", "\n", "\r\n", "\r\r\n\u0301", "  a", " \t\n", "a  ", "▁", "▁▁▁", "▁\n", "a\n▁", "``a''", "  !a", "…a", "⑴\u0301", "¨\u0323", "q\u0301",
         "<sep>", " <sep> a", "<sep><sep>", "a<sep>", "\u0301a", "\0", "a\0\u0301", "A" * 3000, "\u0301" * 900, " " * 3000, "\u1100" * 300,
         "\U0001F469\u200d" * 300, "\U0001F1E9" * 301, "क\u094d" * 200, "a\n", "\nabc\n", "x" + "\u3000" * 50 + "y"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, source_dir):
    folder = tmp_path_factory.mktemp("charsmaps")
    text = training_text(source_dir)
    (folder / "text.txt").write_text(text)
    (folder / "few.txt").write_text("a b c d\n" * 20)
    for name in ["unigram", *RULES]:
        options = {"input": "text.txt", "vocab_size": 1000, "model_type": "unigram", "normalization_rule_name": "nfkc"}
        if name in RULES:
            options = {"input": "few.txt", "vocab_size": 8, "model_type": "char", "normalization_rule_name": name}
        options["input"] = str(folder / options["input"])
        sentencepiece.SentencePieceTrainer.train(model_prefix=str(folder / name), minloglevel=2, max_sentence_length=20000, num_threads=2,
                                                 hard_vocab_limit=False, **options)
    return folder


def model_of(show, folder):
    if show == "bytes":
        vocab = {"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}
        return models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True, ignore_merges=True)
    if show == "ends":
        return models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("a", -2.0)], 0, False)
    wheel = sentencepiece.SentencePieceProcessor(model_file=str(folder / "unigram.model"))
    return models.Unigram([(wheel.id_to_piece(i), wheel.get_score(i)) for i in range(wheel.get_piece_size())], 0, False)


def make(kind, show, folder, path):
    rule, steps, pre_tokenizer = KINDS[kind]
    tokenizer = Tokenizer(model_of(show, folder))
    charsmap = N.Precompiled(charsmap_of((folder / f"{rule}.model").read_bytes())) if rule else None
    tokenizer.normalizer = N.Sequence([charsmap if step == "charsmap" else step for step in steps])
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    tokenizer.add_tokens([AddedToken("<sep>", normalized=False), AddedToken("<user>", normalized=True)])
    tokenizer.save(str(path))
    return tokenizer


def texts_of(kind, source_dir, num):
    draw = random.Random(kind)
    text = training_text(source_dir)
    texts = TRAPS + [text[at : at + draw.choice([10, 100, 2000])] for at in (draw.randrange(len(text)) for _ in range(20))] + [text[:5000]]
    return texts + ["".join(draw.choice(ATOMS) for _ in range(draw.randint(1, 12))) for _ in range(num)]


@pytest.mark.parametrize("show", ["bytes", "ends", "trained"])
@pytest.mark.parametrize("kind", KINDS)
def test_same_ids(tools, source_dir, trained, tmp_path, kind, show):
    reference = make(kind, show, trained, tmp_path / "t.json")
    texts = texts_of(kind, source_dir, CASES)
    found = encoded(tools, [text.encode() for text in texts], tmp_path / "t.json", "match")
    for text, (ids, _) in zip(texts, found):
        assert ids == reference.encode(text, add_special_tokens=False).ids, ascii(text[:200])


@pytest.mark.parametrize("step", ["charsmap", LOW, N.StripAccents(), N.Nmt(), N.Strip(), P.Punctuation("removed"), P.Whitespace(), P.WhitespaceSplit()],
                         ids=lambda step: type(step).__name__)
def test_every_character(tools, trained, tmp_path, step):
    """By itself, behind a letter and before one."""
    reference = make("xlmr", "bytes", trained, tmp_path / "t.json")
    if step != "charsmap":
        is_normalizer = isinstance(step, N.Normalizer)
        reference.normalizer = step if is_normalizer else None
        reference.pre_tokenizer = None if is_normalizer else P.Sequence([step, P.Metaspace()])
        reference.save(str(tmp_path / "t.json"))
    # Without the inside of the large blocks, where one character is as another.
    inside = [(0x3500, 0x9F00), (0xAD00, 0xE000), (0x12500, 0x16000), (0x17100, 0x18A00), (0x20100, 0x2F700), (0x30000, 0xE0000)]
    everything = [chr(c) for c in range(0xE0200) if not any(first <= c < last for first, last in inside)]
    # One text for some 500 characters each.
    groups = ["".join(f" {c} q{c} {c}q" for c in everything[at : at + 500]) for at in range(0, len(everything), 500)]
    for group, (ids, _) in zip(groups, encoded(tools, [group.encode() for group in groups], tmp_path / "t.json")):
        assert ids == reference.encode(group, add_special_tokens=False).ids, ascii(group[:30])


def test_the_tables_are_what_the_script_writes(source_dir):
    subprocess.run([sys.executable, source_dir / "scripts/hf_character_tables.py", "--check",
                    source_dir / "libcommon/io/tokenizer/hf_characters.inc"], check=True)


BOTH = "means another thing to each engine"


@pytest.mark.parametrize(("step", "message"), [
    ({"type": "BertNormalizer"}, "normalizer BertNormalizer is not supported"),
    ({"type": "Replace", "pattern": {"String": ""}, "content": "x"}, "normalizer Replace of the empty text is not supported"),
    ({"type": "Replace", "pattern": {"Regex": " *"}, "content": "x"},
     "normalizer Replace of pattern ' *' is not supported (it can match the empty text)"),
    ({"type": "Replace", "pattern": {"Regex": r"\p{Han}+"}, "content": "x"}, rf"pattern '\p{{Han}}+' is not supported ('\p{{Han}}' {BOTH})"),
    ({"type": "Replace", "pattern": {"Regex": "a{1,2}+"}, "content": "x"}, f"pattern 'a{{1,2}}+' is not supported ('{{1,2}}+' {BOTH})"),
    ({"type": "Replace", "pattern": {"Regex": "a{,2}"}, "content": "x"}, f"pattern 'a{{,2}}' is not supported ('{{,2}}' {BOTH})"),
    ({"type": "Replace", "pattern": {"Regex": "(?m)a"}, "content": "x"}, f"pattern '(?m)a' is not supported ('(?m' {BOTH})"),
    ({"type": "Replace", "pattern": {"Regex": "[[a]b]"}, "content": "x"}, f"pattern '[[a]b]' is not supported ('[ inside []' {BOTH})"),
    ({"type": "Precompiled", "precompiled_charsmap": "no"}, "precompiled_charsmap is not base64"),
    ({"type": "Precompiled", "precompiled_charsmap": "////fwAA"}, "charsmap is broken (a trie of 2147483647 bytes in a field of 6)"),
])
def test_what_is_not_exact_is_refused_by_name(tools, tmp_path, step, message):
    path = tmp_path / "t.json"
    data = json.loads(Tokenizer(models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>")).to_str())
    data["normalizer"] = {"type": "Sequence", "normalizers": [step]}
    path.write_text(json.dumps(data))
    assert refusal(tools, path) == (2, f"{path}: {message}\n")
