"""Faults that tools of this kind had, by system and number: plimsoll-shard does not have them."""

import gzip
import json
import subprocess

import h5py
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers


def jsonl(texts):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def shards_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.h5"))}


def documents_of(folder):
    found = []
    for path in sorted(folder.glob("shard_*.h5")):
        with h5py.File(path, "r") as file:
            tokens, begin = file["tokens"][:], 0
            for end in file["documents/ends"][:]:
                found.append(tokens[begin:end].tolist())
                begin = end
    return found


def test_documents_without_text_at_any_place(run, tmp_path):
    """Megatron-LM 62, 83: an empty document at the front ended the tool. Each kind stands first, in the middle and last."""
    for name, row, word in [("empty", '{"text":""}', "empty 1"), ("white", '{"text":" \\n\\t"}', "empty 0"),
                            ("missing", '{"body":"x"}', "bad 1"), ("null", '{"text":null}', "bad 1")]:
        for place in range(3):
            rows = ['{"text":"one"}', '{"text":"two"}']
            rows.insert(place, row)
            (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n")
            done = run("shard", "--input", "a.jsonl", "--on-bad-record", "skip", "--out", "out", "--force")
            assert done.rc == 0 and word in done.stdout.splitlines()[0], (name, place, done.stderr)
            expected = [[*b"one", 256], [*b"two", 256]]
            if name == "white":
                expected.insert(place, [*b" \n\t", 256])
            assert documents_of(tmp_path / "out") == expected, (name, place)


def test_each_compression_in_any_number_of_parts_gives_the_same_bytes(run, tmp_path):
    """Megatron-LM 1135: gzip with partitions was read wrong."""
    texts = [[f"{file} {i} " + "word " * (i % 17) for i in range(100)] for file in range(3)]
    writers = {"a.jsonl": lambda rows: jsonl(rows).encode(), "a.jsonl.gz": lambda rows: gzip.compress(jsonl(rows).encode()),
               "a.jsonl.zst": lambda rows: zstandard.ZstdCompressor().compress(jsonl(rows).encode()), "a.parquet": None}
    expected = None
    for name, make in writers.items():
        for i, rows in enumerate(texts):
            if make is None:
                pq.write_table(pa.table({"text": rows}), tmp_path / f"{i}{name}")
            else:
                (tmp_path / f"{i}{name}").write_bytes(make(rows))
        args = ["--input", f"[0-2]{name}", "--shard-tokens", 9000, "--threads", 1]
        assert run("shard", *args, "--out", "out", "--force").rc == 0
        expected = expected or shards_of(tmp_path / "out")
        assert len(expected) > 1 and shards_of(tmp_path / "out") == expected, name
        for index in range(3):
            done = run("shard", *args, "--shard-index", index, "--num-shards", 3, "--out", f"p_{name}")
            assert done.rc == 0, done.stderr
        assert run("shard", "merge", f"p_{name}/part_*_of_00003", "--out", "out", "--force").rc == 0
        assert shards_of(tmp_path / "out") == expected, name


def test_many_tasks_start_at_once_in_an_empty_place(tools, run, tmp_path):
    """OLMo-core 651, Megatron-Bridge 3886: tasks that started together fought for a directory."""
    (tmp_path / "a.jsonl").write_text(jsonl([f"text {i}" for i in range(400)]))
    command = [tools / "plimsoll-shard", "--input", "a.jsonl", "--threads", "1", "--num-shards", "32", "--out", "deep/parts"]
    tasks = [subprocess.Popen([*command, "--shard-index", str(i)], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
             for i in range(32)]
    for task in tasks:
        _, stderr = task.communicate(timeout=60)
        assert task.returncode == 0, stderr
    assert run("shard", "merge", "deep/parts/part_*", "--out", "merged").rc == 0
    assert run("shard", "--input", "a.jsonl", "--out", "whole").rc == 0
    assert shards_of(tmp_path / "merged") == shards_of(tmp_path / "whole")


def test_one_document_makes_a_shard_that_can_be_read(run, tmp_path):
    """dolma 225: exit 0 and an empty file. The predicted number of shards is the one that is written (dolma 272)."""
    (tmp_path / "a.jsonl").write_text(jsonl(["x"]))
    assert json.loads(run("shard", "--input", "a.jsonl", "--dry-run", "--json").stdout)["train"]["shards"] == 1
    assert run("shard", "--input", "a.jsonl", "--out", "out").rc == 0
    assert documents_of(tmp_path / "out") == [[120, 256]]
    assert run("shard", "decode", "out").stdout == "x\n"


@pytest.fixture
def tokenizer(tmp_path):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(["low lower lowest new newer"] * 20, trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<|endoftext|>", "<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    made.save(str(tmp_path / "tokenizer.json"))
    return made


def test_no_token_begins_a_document_twice_or_at_all(run, tmp_path, tokenizer):
    """llama.cpp 7107, mlx-examples 1095: <s> came from the template of the file and from the tool."""
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.jsonl").write_text(jsonl(["lower", "newer"]))
    assert run("shard", "--input", "a.jsonl", "--tokenizer", "tokenizer.json", "--out", "out").rc == 0
    assert documents_of(tmp_path / "out") == [
        [*tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.token_to_id("<|endoftext|>")] for text in ("lower", "newer")]


def test_a_tokenizer_whose_file_changed_is_another_one(run, tmp_path, tokenizer):
    """transformers 42591: the published file of a tokenizer was wrong, and mended under the same name."""
    (tmp_path / "a.jsonl").write_text(jsonl(["lower newer"] * 3000))
    args = ["--input", "a.jsonl", "--tokenizer", "tokenizer.json", "--shard-tokens", 2000, "--block-bytes", "1KiB"]
    assert run("shard", *args, "--out", "old").rc == 0
    assert run("shard", *args, "--out", "out", env={"PLIMSOLL_CRASH_POINT": "corpus_journaled:1"}).rc == -9
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    definition["model"]["merges"].pop()
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    done = run("shard", *args, "--out", "out")
    assert done.rc == 2 and "(tokenizer-sha256 was " in done.message and "or --restart to begin anew" in done.message
    assert run("shard", *args, "--out", "out", "--restart").rc == 0
    done = run("shard", "merge", "old", "out", "--out", "both")
    assert done.rc == 2 and "were not made alike (tokenizer-sha256 " in done.message
    done = run("shard", "decode", "old")
    assert done.rc == 2 and "its tokenizer 'tokenizer.json' (sha256 " in done.message


def test_names_of_files_may_be_any_bytes(tools, tmp_path):
    """JSON holds no such name: what is written there has U+FFFD in its place, and all goes on."""
    names = [b"in\xff.jsonl", b"out\xff", b"t\xff.json"]
    (tmp_path / "a.jsonl").write_text(jsonl(["text"] * 3000) + "bad\n")
    (tmp_path / "a.jsonl").rename(tmp_path / "in\udcff.jsonl")

    def call(*args, env=None):
        return subprocess.run([tools / "plimsoll-shard", *args], cwd=tmp_path, capture_output=True, check=False, env=env)

    done = call("train-bpe", "--input", names[0], "--on-bad-record", "skip", "--vocab", "258", "--out", names[2], "--json")
    assert done.returncode == 0 and json.loads(done.stdout.decode())["out"] == "t\ufffd.json", done.stderr
    args = ["--input", names[0], "--tokenizer", names[2], "--on-bad-record", "skip", "--block-bytes", "1KiB", "--out", names[1], "--json"]
    assert call(*args, env={"PLIMSOLL_CRASH_POINT": "corpus_journaled:1"}).returncode == -9
    done = call(*args)
    assert done.returncode == 0 and b"resumed    behind " in done.stderr, done.stderr
    assert json.loads(done.stdout.decode())["out"] == "out\ufffd"
    for command in ("inspect", "verify"):
        assert json.loads(call(command, names[1], "--json").stdout.decode())["schema_version"] == 1
    done = call("--input", names[0], "--dry-run")
    assert done.returncode == 2 and b"plimsoll-shard: in\xff.jsonl:3001: not valid json (" in done.stderr
