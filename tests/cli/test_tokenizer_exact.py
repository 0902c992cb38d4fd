"""Byte-level BPE against HF `tokenizers` and `tiktoken`: the same ids for any text.

Five vocabularies of each family are learned here, from texts and to sizes of their own. PLIMSOLL_TOKENIZER_CASES=1000000 is the
long run, PLIMSOLL_TOKENIZER_CORPORA=DIR takes *.txt of a folder as further text (all of it for the first vocabulary, a fifth for the
others, which learn from it), PLIMSOLL_TOKENIZER_RANKS=DIR real rank files.
"""

import os
import random
import time
from pathlib import Path

import pytest
import tiktoken
from tokenizers import AddedToken, Tokenizer, normalizers

import tokenizer_cases as cases

NUM_CASES = int(os.environ.get("PLIMSOLL_TOKENIZER_CASES", "100000"))
CORPORA = os.environ.get("PLIMSOLL_TOKENIZER_CORPORA")
RANKS = os.environ.get("PLIMSOLL_TOKENIZER_RANKS")
HF_FAMILIES = ["gpt2", "gpt2-possessive", "gpt2-prefix", "cl100k", "o200k", "llama3", "qwen2", "qwen2-nfc", "qwen3.5", "tekken", "deepseek",
               "megatron-v1", "own", "own-lines", "own-empty", "digits", "whole", "cl100k-removed", "llama3-ignore-merges",
               "o200k-ignore-merges", "small-alphabet"]
RANK_FAMILIES = ["gpt2", "cl100k", "o200k", "llama3"]
SHARE = max(1, NUM_CASES // (len(HF_FAMILIES) + len(RANK_FAMILIES)))
VOCABULARIES = ["mixed-1500", "prose-400", "code-700", "languages-900", "mixed-4000"]


class LearningText(dict):
    """By kind: prose, code, languages, mixed."""

    def of(self, vocabulary):
        return self[vocabulary.split("-")[0]]


@pytest.fixture(scope="session")
def text(source_dir):
    prose = [path.read_text() for path in sorted((source_dir / "docs").glob("*.md"))[:6]]
    code = [path.read_text() for path in sorted((source_dir / "libcommon/base").glob("*.cpp"))[:10]]
    texts = LearningText(prose=prose, code=code, languages=[cases.TEXT], mixed=[cases.TEXT, *prose, *code])
    if CORPORA:
        texts["languages"] = [cases.TEXT, *corpus_documents(100)]
        texts["mixed"] += corpus_documents(50)
    return texts


def train(family, text, vocabulary="mixed-1500"):
    base = family.removesuffix("-nfc").removesuffix("-ignore-merges")
    vocab_size = int(vocabulary.split("-")[1]) * (10 if CORPORA and vocabulary != VOCABULARIES[0] else 1)
    if family == "small-alphabet":
        words = " ".join(text.of(vocabulary))
        words = "".join(c for c in words if c.isascii())[:vocab_size]
        return cases.train("gpt2", ["the quick brown fox jumps over the lazy dog " * 3, words], 60 + vocab_size // 10, alphabet=False)
    normalizer = normalizers.NFC() if family.endswith("-nfc") or family == "qwen3.5" else None
    return cases.train(base, text.of(vocabulary), vocab_size, normalizer, ignore_merges=family.endswith("ignore-merges"))


def corpus_documents(part=1):
    """Documents of some 20 kB of the long run's corpora; of each `part` of them the first."""
    documents = []
    for path in sorted(Path(CORPORA).glob("*.txt")) if CORPORA else []:
        limit = int(os.environ.get("PLIMSOLL_TOKENIZER_CORPUS_BYTES", "2000000"))
        data = path.read_bytes()[:limit].decode("utf-8", "ignore")
        documents += [data[i:i + 20000] for i in range(0, len(data), 20000)]
    return documents[::part]


def compare(texts, wanted, found, note):
    assert len(found) == len(texts)
    for text, want, have in zip(texts, wanted, found):
        if list(want) != have:
            at = next((i for i, (a, b) in enumerate(zip(want, have)) if a != b), min(len(want), len(have)))
            pytest.fail(f"{note}: {text[:300]!r}: id {at}: wanted {list(want)[max(0, at - 2):at + 4]} of {len(want)}, "
                        f"found {have[max(0, at - 2):at + 4]} of {len(have)}")


def hf_ids(tokenizer, texts):
    return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def compare_hf(tools, path, tokenizer, texts, note):
    tokenizer.encode_special_tokens = True
    data = [t.encode() for t in texts]
    compare(texts, hf_ids(tokenizer, texts), cases.probe(tools, [path, "--special", "text"], data), f"{note}, text")
    tokenizer.encode_special_tokens = False
    some = slice(0, None, 4)
    compare(texts[some], hf_ids(tokenizer, texts[some]), cases.probe(tools, [path, "--special", "match"], data[some]), f"{note}, match")


def texts_for(vocabulary, seed):
    """This vocabulary's share of the cases and of the corpora."""
    first = vocabulary == VOCABULARIES[0]
    return cases.adversarial(SHARE // len(VOCABULARIES), f"{seed} {vocabulary}") + corpus_documents(1 if first else len(VOCABULARIES))


@pytest.mark.parametrize("family", HF_FAMILIES)
def test_tokenizer_json_gives_the_ids_of_hf_tokenizers(family, tools, tmp_path, text):
    for vocabulary in VOCABULARIES:
        path = tmp_path / f"{vocabulary}.json"
        train(family, text, vocabulary).save(str(path))
        texts = texts_for(vocabulary, f"hf {family}")
        if family.startswith("own"):
            texts = [each for each in texts if not cases.newer_than_pcre2(each)]
        compare_hf(tools, path, Tokenizer.from_file(str(path)), texts, f"{family}, {vocabulary}")


@pytest.mark.parametrize("family", RANK_FAMILIES)
def test_rank_files_give_the_ids_of_tiktoken(family, tools, tmp_path, text):
    pattern = cases.PATTERNS["gpt2-possessive" if family == "gpt2" else family]
    for vocabulary in VOCABULARIES:
        ranks = cases.ranks_of(train(family, text, vocabulary))
        path = tmp_path / f"{vocabulary}.tiktoken"
        path.write_text(cases.rank_text(ranks))
        oracle = tiktoken.Encoding("own", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)})
        compare_tiktoken(tools, f"{path}:pattern={family}", oracle, texts_for(vocabulary, f"tiktoken {family}"), f"{family}, {vocabulary}")


def compare_tiktoken(tools, kind, oracle, texts, note):
    data = [t.encode() for t in texts]
    compare(texts, [oracle.encode_ordinary(t) for t in texts], cases.probe(tools, [kind, "--special", "text"], data), f"{note}, text")
    some = slice(0, None, 4)
    wanted = [oracle.encode(t, allowed_special="all") for t in texts[some]]
    compare(texts[some], wanted, cases.probe(tools, [kind, "--special", "match"], data[some]), f"{note}, match")


REAL = {"cl100k_base": "cl100k", "o200k_base": "o200k"}


@pytest.mark.skipif(RANKS is None, reason="PLIMSOLL_TOKENIZER_RANKS names no folder of rank files")
@pytest.mark.parametrize("name", REAL)
def test_real_rank_files_give_the_ids_of_tiktoken(name, tools):
    from tiktoken.load import load_tiktoken_bpe

    path = Path(RANKS) / f"{name}.tiktoken"
    ranks = load_tiktoken_bpe(str(path))
    specials = {"cl100k_base": {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
                                "<|endofprompt|>": 100276},
                "o200k_base": {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}}[name]
    oracle = tiktoken.Encoding(name, pat_str=cases.PATTERNS[REAL[name]], mergeable_ranks=ranks, special_tokens=specials)
    compare_tiktoken(tools, path, oracle, cases.adversarial(SHARE, f"real {name}"), name)
    compare_tiktoken(tools, path, oracle, corpus_documents(), f"{name}, corpora")


ADDED = [
    [AddedToken("<x>", special=False, normalized=False)],
    [AddedToken("<x>", special=True, lstrip=True), AddedToken("<y>", special=True, rstrip=True)],
    [AddedToken("the", single_word=True, special=False), AddedToken("then", special=False), AddedToken(" the", special=False)],
    [AddedToken("é", special=False, normalized=True), AddedToken("e\u0301", special=False, normalized=False)],
    [AddedToken("  ", special=False), AddedToken("    ", special=False, normalized=False), AddedToken("\n", special=True, rstrip=True, lstrip=True)],
    [AddedToken("a", single_word=True, lstrip=True, rstrip=True, special=False), AddedToken("_", special=False, single_word=True)],
    [AddedToken("<|im_start|>x", special=True), AddedToken("x<|im_end|>", special=False), AddedToken("|>", special=False)],
    [AddedToken("中", special=False, single_word=True), AddedToken("ⓐ", special=False, single_word=True), AddedToken("😀", special=False, single_word=True)],
]


@pytest.mark.parametrize("row", range(len(ADDED)))
@pytest.mark.parametrize("family", ["llama3", "qwen2-nfc", "gpt2-prefix"])
def test_added_tokens_are_found_as_hf_finds_them(row, family, tools, tmp_path, text):
    tokenizer = train(family, text, "mixed-600")
    tokenizer.add_tokens([t for t in ADDED[row] if not t.special])
    tokenizer.add_special_tokens([t for t in ADDED[row] if t.special])
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    rng_texts = cases.adversarial(300, f"added {family} {row}")
    contents = [t.content for t in ADDED[row]]
    texts = [t[:i % 7] + contents[i % len(contents)] + t[i % 7:] for i, t in enumerate(rng_texts)]
    texts += [f" {c}{d}  {c} {d}\u00a0{c}x{d}_{c}\u200d{d}\u0301{c}½{d}٣{c}" for c in contents for d in contents]
    compare_hf(tools, path, Tokenizer.from_file(str(path)), texts, f"{family} {row}")


def test_decoding_gives_the_text_back(tools, tmp_path, text):
    tokenizer = train("llama3", text)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    texts = [t.encode() for t in cases.adversarial(2000, "decode")]
    ids = cases.probe(tools, [path], texts)
    assert cases.probe(tools, [path, "--decode"], ids, unit="B") == texts


def test_ten_thousand_added_tokens_are_found_as_hf_finds_them_and_cost_no_time(tools, tmp_path, text):
    """meta-pytorch tokenizers 204: 6,000 added tokens in one regular expression took 27 ms for 6 kB, or its memory."""
    tokenizer = train("llama3", text, "mixed-400")
    rng = random.Random(3)
    words = sorted({"".join(rng.choices("abcdeé<|_ ", k=rng.randint(2, 9))) for _ in range(11000)})[:10000]
    tokenizer.add_tokens([AddedToken(word, normalized=i % 2 == 0, special=False) for i, word in enumerate(words)])
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    texts = ["".join(rng.choices(words + ["a", "b", "x", " ", "\n"], k=60)) for _ in range(500)]
    data = [t.encode() for t in texts]
    compare(texts, hf_ids(tokenizer, texts), cases.probe(tools, [path], data), "10,000 added tokens")
    started = time.monotonic()
    cases.probe(tools, [path], ["".join(texts).encode() * 20])
    assert time.monotonic() - started < 9, "4 MB; at 27 ms for 6 kB it would be 18 s"


RUNS = int(os.environ.get("PLIMSOLL_TOKENIZER_RUN", "100000"))


@pytest.mark.parametrize("piece", ["a", " ", "\n", "中"])
def test_runs_of_one_character_are_exact_and_cost_no_time(piece, tools, tmp_path):
    """tiktoken 15, 195, 245, 327: quadratic time, then a panic. Exact for PLIMSOLL_TOKENIZER_RUN of them, a million at speed."""
    ranks = cases.ranks_of(cases.train("cl100k", [cases.TEXT, "aaaaaaaaaaaaaaaa" * 9, "中中中中中中" * 9, "                 x\n\n\n\n\n\nx" * 9], 900))
    path = tmp_path / "own.tiktoken"
    path.write_text(cases.rank_text(ranks))
    oracle = tiktoken.Encoding("own", pat_str=cases.PATTERNS["cl100k"], mergeable_ranks=ranks, special_tokens={})
    kind = f"{path}:pattern=cl100k"
    texts = [piece * (RUNS - i) for i in range(2)]
    compare(texts, [oracle.encode_ordinary(t) for t in texts], cases.probe(tools, [kind], [t.encode() for t in texts]), "runs")
    started = time.monotonic()
    cases.probe(tools, [kind], [(piece * 1_000_000).encode()])
    assert time.monotonic() - started < 10, "quadratic merging takes minutes"
