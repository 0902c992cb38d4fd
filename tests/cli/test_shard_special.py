"""Special tokens' texts in documents, and which token ends one."""

import json

import h5py
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers


@pytest.fixture
def tokenizer(tmp_path):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(["low lower lowest new newer"] * 20, trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>", "<|stop|>"], initial_alphabet=alphabet, show_progress=False))
    made.save(str(tmp_path / "tokenizer.json"))
    rows = ["lower", "new <|stop|> newer", "low", "<|endoftext|>"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    return made


def tokens_of(folder):
    with h5py.File(folder / "shard_00000.h5") as file:
        return file["tokens"][:].tolist()


def test_special_tokens_in_text_are_text_tokens_or_errors(run, tmp_path, tokenizer):
    stop, end = tokenizer.token_to_id("<|stop|>"), tokenizer.token_to_id("<|endoftext|>")
    args = ["--input", "a.jsonl", "--tokenizer", "tokenizer.json"]
    done = run("shard", *args, "--out", "text")
    assert done.rc == 0, done.stderr
    assert "special-in-text 2 (as text)" in done.stdout.splitlines()[0]
    assert tokens_of(tmp_path / "text").count(end) == 4 and stop not in tokens_of(tmp_path / "text")

    done = run("shard", *args, "--special-in-text", "match", "--out", "match", "--json")
    assert json.loads(done.stdout)["input"]["special_in_text"] == 2
    assert tokens_of(tmp_path / "match").count(stop) == 1

    done = run("shard", *args, "--special-in-text", "error", "--out", "error")
    assert done.rc == 2 and "a.jsonl:2: " in done.stderr.splitlines()[-1] and "<|stop|>" in done.stderr
    done = run("shard", *args, "--special-in-text", "error", "--on-bad-record", "skip", "--out", "error")
    assert done.stdout.startswith("documents  2   empty 0   bad 2 (skipped, see error/bad_records.jsonl)")
    assert tokens_of(tmp_path / "error").count(end) == 2


def test_another_token_ends_documents(run, tmp_path, tokenizer):
    assert run("shard", "--input", "a.jsonl", "--tokenizer", "tokenizer.json", "--eod", "<|stop|>", "--out", "out").rc == 0
    assert tokens_of(tmp_path / "out").count(tokenizer.token_to_id("<|stop|>")) == 4
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["tokenizer"]["eod"] == tokenizer.token_to_id("<|stop|>")
    done = run("shard", "--input", "a.jsonl", "--tokenizer", "tokenizer.json", "--eod", "<|none|>", "--out", "none")
    assert done.rc == 2
    assert done.message == "plimsoll-shard: tokenizer 'tokenizer.json' has no special token '<|none|>' to end a document with. name another with --eod"


def test_how_a_corpus_uses_a_tokenizer_makes_it_no_other(run, tmp_path, tokenizer):
    """The texts come back with the same tokenizer file, whatever ended documents and whatever special tokens' texts meant."""
    texts = [json.loads(line)["text"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    for name, options in {"eod": ["--eod", "<|stop|>"], "match": ["--special-in-text", "match"]}.items():
        assert run("shard", "--input", "a.jsonl", "--tokenizer", "tokenizer.json", *options, "--out", name).rc == 0
        done = run("shard", "decode", name, "--tokenizer", "tokenizer.json", "--json")
        assert done.rc == 0, done.stderr
        found = [json.loads(line)["text"] for line in done.stdout.splitlines()]
        assert found == (texts if name == "eod" else [t.replace("<|stop|>", "").replace("<|endoftext|>", "") for t in texts])
        assert run("shard", "inspect", name, "--document", "0", "--tokenizer", "tokenizer.json").stdout.startswith("lower")


def test_a_tokenizer_without_a_known_end_needs_one_for_shards_only(run, tmp_path, tokenizer):
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    definition["added_tokens"] = [t for t in definition["added_tokens"] if t["content"] == "<|stop|>"]
    (tmp_path / "t.json").write_text(json.dumps(definition))
    done = run("shard", "--input", "a.jsonl", "--tokenizer", "t.json", "--out", "out")
    assert done.rc == 2
    assert done.message == ("plimsoll-shard: tokenizer 't.json' has no token that is known to end a document (<|endoftext|>, </s>, <eos> "
                            "and the like). name one with --eod")
    assert run("shard", "--input", "a.jsonl", "--tokenizer", "t.json", "--eod", "<|stop|>", "--out", "out").rc == 0
    assert run("shard", "decode", "out", "--tokenizer", "t.json").stdout.splitlines()[0] == "lower"
