"""plimsoll-shard train-bpe against HF tokenizers' own trainer: the same vocabulary, the same merges, the same ids."""

import json
import random

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

PATTERNS = ["gpt2", "cl100k", "llama3", "qwen2", "qwen3.5", "o200k", "tekken", "deepseek"]
WORDS = ("the ship's load line, sailing through 12345 waves! I'LL CamelCaseWords don't été naïve Straße 船は海を行く 你好世界 "
         "привет мир e\u0301cole ﬁn ½ ١٢٣ अनुच्छेद \u1112\u1161\u11ab x=y+1; /* no */ def f(a, b):\n    return a_b['k']\n\n\t").split(" ")


def documents():
    """Zipf-like text with ties in abundance, since ties are where trainers differ."""
    random.seed(5)
    made = [w + c for w in WORDS for c in ("", ",", "\n", "s", "ing")]
    out = []
    for _ in range(400):
        out.append(" ".join(made[min(int(random.paretovariate(0.7)) - 1, len(made) - 1)] for _ in range(random.randrange(0, 90))))
    return out + ["", "aaaaaaaaaaaaaaaaaaaaaaaa", "abababababab ababab", "\u0000", "<|endoftext|> <|endoftext|>"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("train_bpe") / "text.jsonl"
    path.write_text("".join(json.dumps({"text": d}) + "\n" for d in documents()))
    return path


def learned_by_hf(mine, vocab):
    reference = Tokenizer.from_str(json.dumps(mine))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = reference.pre_tokenizer
    if reference.normalizer is not None:
        tokenizer.normalizer = reference.normalizer
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=[a["content"] for a in mine["added_tokens"]],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(documents(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_learns_what_hf_learns(run, corpus, tmp_path, pattern):
    for vocab in (300, 900):
        out = tmp_path / f"{vocab}.json"
        done = run("shard", "train-bpe", "--input", corpus, "--vocab", vocab, "--pattern", pattern, "--special", "<|endoftext|>",
                   "<|pad|>", "--out", out, "--json")
        assert done.rc == 0, done.stderr
        mine = json.loads(out.read_text())
        vocabulary, merges = learned_by_hf(mine, vocab)
        assert mine["model"]["vocab"] == vocabulary
        assert mine["model"]["merges"] == merges
        report = json.loads(done.stdout)
        assert report["vocab"] == len(vocabulary) and report["merges"] == len(merges) and report["documents"] == len(documents())


@pytest.mark.parametrize("pattern", PATTERNS)
def test_our_reader_gives_the_ids_of_hf_with_it(run, tools, corpus, tmp_path, pattern):
    import tokenizer_cases as cases
    out = tmp_path / "tokenizer.json"
    assert run("shard", "train-bpe", "--input", corpus, "--vocab", 700, "--pattern", pattern, "--out", out).rc == 0
    reference = Tokenizer.from_file(str(out))
    texts = [d for d in documents() if "<|endoftext|>" not in d]
    found = cases.probe(tools, [str(out)], [t.encode() for t in texts])
    for text, ids in zip(texts, found):
        assert list(ids) == reference.encode(text).ids, text


def test_threads_and_order_of_documents_decide_nothing(run, corpus, tmp_path):
    shuffled = tmp_path / "shuffled.jsonl"
    lines = corpus.read_text().splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    shuffled.write_text("".join(lines))
    written = set()
    for i, (source, threads) in enumerate([(corpus, 1), (corpus, 4), (shuffled, 3)]):
        out = tmp_path / f"{i}.json"
        assert run("shard", "train-bpe", "--input", source, "--vocab", 800, "--threads", threads, "--out", out).rc == 0
        written.add(out.read_bytes())
    assert len(written) == 1


def test_a_text_without_more_pairs_gives_a_smaller_vocabulary(run, tmp_path):
    (tmp_path / "a.txt").write_text("ab ab")
    done = run("shard", "train-bpe", "--input", tmp_path / "a.txt", "--vocab", 1000, "--pattern", "gpt2", "--out", tmp_path / "t.json")
    assert done.rc == 0
    assert "learned    259 ids, 2 merges, the last met 1 times" in done.stdout
    assert "note       the text has no more pairs for 1,000 ids: a model needs only 259" in done.stdout
    rare = run("shard", "train-bpe", "--input", tmp_path / "a.txt", "--vocab", 1000, "--pattern", "gpt2", "--min-frequency", 2, "--dry-run")
    assert "learned    258 ids, 1 merges, the last met 2 times" in rare.stdout and "dry run    nothing was written" in rare.stdout


@pytest.mark.parametrize("arguments, message", [
    (["--vocab", "256"], "--vocab 256 is too small (1 special token and 256 bytes). at least 257"),
    (["--special", "<a>", "<a>"], "special token '<a>' is given twice"),
    (["--special", "x"], "special token 'x' is a single byte. choose a longer one"),
    (["--out", "{dir}"], "'{dir}' is a directory. give --out a file name like {dir}/tokenizer.json"),
    (["--out", "{dir}/exists"], "'{dir}/exists' exists. choose another --out, or --force to replace it"),
])
def test_what_cannot_be_is_said_before_the_text_is_read(run, corpus, tmp_path, arguments, message):
    (tmp_path / "exists").write_text("old")
    arguments = [a.format(dir=tmp_path) for a in arguments]
    if "--out" not in arguments:
        arguments += ["--out", tmp_path / "t.json"]
    done = run("shard", "train-bpe", "--input", corpus, *arguments)
    assert (done.rc, done.stderr.strip()) == (2, "plimsoll-shard: " + message.format(dir=tmp_path))
    assert (tmp_path / "exists").read_text() == "old" and not (tmp_path / "t.json").exists()


def test_text_that_is_none(run, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    done = run("shard", "train-bpe", "--input", tmp_path / "a.jsonl", "--out", tmp_path / "t.json")
    assert done.rc == 2 and "no text in 1 input file (1 documents, 0 bad). nothing to learn from" in done.stderr
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n{"text": 7}\n')
    done = run("shard", "train-bpe", "--input", tmp_path / "b.jsonl", "--out", tmp_path / "t.json")
    assert done.rc == 2 and "b.jsonl:2: " in done.stderr and not (tmp_path / "t.json").exists()
