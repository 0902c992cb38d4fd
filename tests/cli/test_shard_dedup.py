"""plimsoll-shard dedup, split and decode: which documents stay, where they go, what they say."""

import json
import os
import random

import h5py
import pytest

WORDS = [f"{a}{b}" for a in ("ba", "ko", "ri", "tu", "se", "mo") for b in ("n", "l", "s", "r", "ta", "vi", "do", "pe")]


def make_shards(run, tmp_path, texts, *args, name="in"):
    (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    done = run("shard", "--input", f"{name}.jsonl", "--out", name, "--shard-tokens", 5000, *args)
    assert done.rc == 0, done.stderr


def texts_of(directory, of="train"):
    texts = []
    for row in json.loads((directory / "manifest.json").read_text())["shards"]:
        if row["set"] != of:
            continue
        with h5py.File(directory / row["path"]) as shard:
            tokens, ends = shard["tokens"][:], shard["documents/ends"][:]
        texts += [bytes(tokens[a : b - 1].astype("u1")).decode() for a, b in zip([0, *ends[:-1]], ends)]
    return texts


def files_of(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def pages(seed, count, length=120):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=length)) + f" {i}" for i in range(count)]


@pytest.fixture
def near(run, tmp_path):
    """60 pages; every third has a copy with one word changed, 20 places on; page 0 a chain of copies of copies."""
    texts, draw = pages(1, 60), random.Random(2)
    for i in range(20, 60, 3):
        words = texts[i - 20].split()
        words[draw.randrange(len(words))] = "changed"
        texts[i] = " ".join(words)
    make_shards(run, tmp_path, texts)
    return texts


def test_exact_copies_go_and_the_first_stays(run, tmp_path):
    texts = [f"page {i % 7} of {i % 5}" for i in range(100)] + ["only once"]
    make_shards(run, tmp_path, texts)
    done = run("shard", "dedup", "in", "--out", "out")
    assert done.rc == 0, done.stderr
    expected = list(dict.fromkeys(texts))
    assert texts_of(tmp_path / "out") == expected
    tokens = sum(len(text) + 1 for text in texts)
    repeated = tokens - sum(len(text) + 1 for text in expected)
    assert done.stdout.splitlines() == [
        f"documents  101   duplicates 65 ({6500 / 101:.2f} %) in 35 clusters",
        f"tokens     {tokens:,}   of duplicates {repeated:,} ({100 * repeated / tokens:.2f} %)",
        "written    36 documents, 1 shard, out/duplicates.jsonl"]
    rows = [json.loads(row) for row in (tmp_path / "out" / "duplicates.jsonl").read_text().splitlines()]
    assert rows == [{"document": i, "of": texts.index(text)} for i, text in enumerate(texts) if texts.index(text) < i]
    assert run("shard", "verify", "out").rc == 0
    again = json.loads(run("shard", "dedup", "out", "--out", "out2", "--json").stdout)
    assert (again["documents"], again["duplicates"], again["clusters"]) == (36, 0, 0)


def test_near_copies_go_by_words(run, tmp_path, near):
    done = run("shard", "dedup", "in", "--out", "out", "--method", "minhash", "--json")
    assert done.rc == 0, done.stderr
    copies = [i for i in range(20, 60, 3)]
    # One word of 121 changes 5 of 117 n-grams: similarity 112 / 122, found with a probability above 0.9999.
    rows = [json.loads(row) for row in (tmp_path / "out" / "duplicates.jsonl").read_text().splitlines()]
    assert [row["document"] for row in rows] == copies
    root = {i: i for i in range(60)}
    for i in copies:
        root[i] = root[i - 20]
    assert {row["document"]: row["of"] for row in rows} == {i: root[i] for i in copies}
    assert texts_of(tmp_path / "out") == [text for i, text in enumerate(near) if i not in copies]
    report = json.loads(done.stdout)
    assert (report["kept"], report["duplicates"], report["clusters"]) == (46, 14, len({root[i] for i in copies}))
    # Tokens of the bytes tokenizer: n-grams of five bytes are too common to tell pages apart at these settings.
    done = run("shard", "dedup", "in", "--out", "by_tokens", "--method", "minhash", "--ngram-of", "tokens", "--ngram", 40)
    assert done.rc == 0 and texts_of(tmp_path / "by_tokens") == texts_of(tmp_path / "out")


def test_threads_and_memory_change_nothing(run, tmp_path):
    texts = [text for i, text in enumerate(pages(3, 400, 30)) for _ in range(1 + i % 3)]
    random.Random(4).shuffle(texts)
    make_shards(run, tmp_path, texts)
    results = []
    for name, args in (("a", ["--threads", 1]), ("b", ["--threads", 2]), ("c", ["--threads", 16]),
                       ("d", ["--threads", 3, "--memory-limit", "512KiB"])):
        done = run("shard", "dedup", "in", "--out", name, "--method", "minhash", "--json", *args)
        assert done.rc == 0, done.stderr
        results.append((files_of(tmp_path / name), json.loads(done.stdout)["key_files"]))
    assert all(files == results[0][0] for files, _ in results)
    assert results[0][1] == 1 and results[3][1] > 1
    assert not [entry for entry in os.listdir(tmp_path) if entry.startswith(".")]


def test_held_out_documents_that_repeat_training_ones_go(run, tmp_path):
    texts = [f"page {i}" for i in range(200)]
    make_shards(run, tmp_path, texts, "--validation", "20%")
    both = run("shard", "decode", "in").stdout.splitlines()
    assert sorted(both) == sorted(texts)
    done = run("shard", "dedup", "in", "--out", "out", "--json")
    assert json.loads(done.stdout)["duplicates"] == 0
    for of in ("train", "validation"):
        assert texts_of(tmp_path / "out", of) == texts_of(tmp_path / "in", of)


def test_dedup_refuses_what_it_cannot_do(run, tmp_path):
    make_shards(run, tmp_path, pages(5, 50, 10))
    done = run("shard", "dedup", "in", "--out", "out", "--memory-limit", "10KiB")
    assert done.rc == 2
    assert done.message == (
        "plimsoll-shard: --memory-limit 10.0 KiB is too little for 50 documents (their clusters take 407 B, their keys at "
        "least 96.1 KiB). give --memory-limit 1MiB or more")
    assert run("shard", "export", "in", "--to", "megatron", "--out", "m").rc == 0
    assert run("shard", "import", "m", "--from", "megatron", "--vocab", 257, "--eod", 256, "--out", "unknown").rc == 0
    done = run("shard", "dedup", "unknown", "--out", "out", "--method", "minhash")
    assert done.rc == 2 and done.message.startswith(
        "plimsoll-shard: words need the tokenizer (--tokenizer FILE names it, --ngram-of tokens does without): ")
    done = run("shard", "dedup", "unknown", "--out", "out", "--method", "minhash", "--tokenizer", "bytes")
    assert done.rc == 2 and "tokenizer 'bytes' (sha256 314068a34107) is not that of 'unknown'" in done.message
    assert not os.path.exists(tmp_path / "out")


def test_split_goes_by_content(run, tmp_path):
    texts = [f"page {i} of many" for i in range(500)]
    make_shards(run, tmp_path, texts, "--validation", "10%")
    done = run("shard", "split", "in", "--out", "a=70%", "b=20%", "c=10%", "--seed", 7)
    assert done.rc == 0, done.stderr
    parts = [texts_of(tmp_path / name) + texts_of(tmp_path / name, "validation") for name in "abc"]
    assert sorted(sum(parts, [])) == sorted(texts)
    assert [abs(len(part) - 500 * share) < 45 for part, share in zip(parts, (0.7, 0.2, 0.1))] == [True] * 3
    assert sorted(sum((texts_of(tmp_path / name) for name in "abc"), [])) == sorted(texts_of(tmp_path / "in"))
    assert done.stdout.splitlines()[0] == (
        f"written    a   {len(parts[0])} documents, {sum(len(text) + 1 for text in parts[0]):,} tokens")
    # The same documents in another order and company go to the same parts.
    make_shards(run, tmp_path, texts[::-3], name="other")
    assert run("shard", "split", "other", "--out", "x=70%", "y=20%", "z=10%", "--seed", 7).rc == 0
    for name, part in zip("xyz", parts):
        assert set(texts_of(tmp_path / name)) == set(texts[::-3]) & set(part)
    assert run("shard", "split", "in", "--out", "d=70%", "e=30%", "--seed", 8).rc == 0
    assert texts_of(tmp_path / "d") != texts_of(tmp_path / "a")
    assert run("shard", "verify", "a", "b", "c").rc == 0


@pytest.mark.parametrize("out, message", [
    (["a", "b=50%"], "--out 'a' is not a directory with its share. write it like train=90%"),
    (["a=50", "b=50%"], "--out 'a=50' is not a directory with its share. write it like train=90%"),
    (["a=60%", "b=50%"], "the shares of --out add up to 110%, not 100%"),
    (["a=100%", "b=0%"], "--out 'b=0%' is not a share above 0%"),
    (["a=50%", "a=50%"], "--out names 'a' twice"),
    (["a=99.99%", "b=0.01%"], "b=0.01% chose no document. choose another share"),
    (["in=50%", "b=50%"],
     "'in' exists and is not empty. choose another --out, or --force to replace the shards in it"),
])
def test_split_refuses(run, tmp_path, out, message):
    make_shards(run, tmp_path, ["one", "two", "three"])
    before = sorted(os.listdir(tmp_path))
    done = run("shard", "split", "in", "--out", *out)
    assert done.rc == 2 and done.message == f"plimsoll-shard: {message}"
    assert sorted(os.listdir(tmp_path)) == before


def test_decode_prints_what_was_read(run, tmp_path):
    texts = ["one", "two\nlines\n", "dréi ☃", "\ttab"]
    make_shards(run, tmp_path, texts)
    done = run("shard", "decode", "in")
    assert done.rc == 0 and done.stdout == "one\ntwo\nlines\ndréi ☃\n\ttab\n"
    done = run("shard", "decode", "in/shard_00000.h5", "--json")
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == texts
    for name in ("megatron", "llmc", "ds", "mds"):
        assert run("shard", "export", "in", "--to", name, "--out", name).rc == 0
        path = {"llmc": "llmc_000000.bin", "ds": "ds.ds"}.get(name, name)
        assert run("shard", "decode", path, "--tokenizer", "bytes").stdout == "one\ntwo\nlines\ndréi ☃\n\ttab\n"
    assert run("shard", "decode", "--tokenizer", "bytes", stdin="72 105 256\n[104, 111]\n\n").stdout == "Hi\nho\n\n"


@pytest.mark.parametrize("args, stdin, message", [
    ([], "1", "--tokenizer is missing (ids on standard input are of which one?)"),
    (["--tokenizer", "bytes"], "1 2\n3 257\n", "line 2: '257' is no id below 257"),
    (["--tokenizer", "bytes"], "1 -2\n", "line 1: '-2' is no id below 257"),
    (["m.idx"], "", "--tokenizer is missing ('m.idx' does not say which one it is of)"),
    (["unknown"], "", "'unknown' is of tokenizer 'unknown.json', a file of which only the name is known. give --tokenizer "
                      "FILE"),
    (["unknown", "--tokenizer", "bytes"], "",
     "unknown: its tokenizer 'unknown.json' (sha256 000000000000) is not 'bytes' (314068a34107)"),
])
def test_decode_refuses(run, tmp_path, args, stdin, message):
    make_shards(run, tmp_path, ["one"])
    assert run("shard", "export", "in", "--to", "megatron", "--out", "m").rc == 0
    manifest = json.loads((tmp_path / "in" / "manifest.json").read_text())
    manifest["tokenizer"].update(name="unknown.json", sha256="0" * 64)
    (tmp_path / "unknown").mkdir()
    (tmp_path / "unknown" / "manifest.json").write_text(json.dumps(manifest))
    done = run("shard", "decode", *args, stdin=stdin)
    assert done.rc == 2 and done.message == f"plimsoll-shard: {message}"
