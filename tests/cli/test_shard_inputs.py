"""What plimsoll-shard reads: compressed text, Parquet, lists, standard input; and what it says of broken ones."""

import gzip
import json
import random
import subprocess

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

REPLACEMENT = "\ufffd"


def documents_of(folder):
    found = []
    for path in sorted(folder.glob("shard_*.h5")):
        with h5py.File(path, "r") as file:
            tokens, ends = file["tokens"][:], file["documents/ends"][:]
        begin = 0
        for end in ends:
            found.append(tokens[begin:end - 1].astype(np.uint8).tobytes().decode())
            begin = end
    return found


def some_texts(count, seed=1):
    rng = random.Random(seed)
    return ["".join(rng.choices("abc \n\u00e9\u65e5\U0001f600\"\\", k=rng.randrange(1, 300))) for _ in range(count)]


def jsonl(texts):
    return "".join(json.dumps({"text": text}, ensure_ascii=i % 2 == 0) + "\n" for i, text in enumerate(texts)).encode()


def zstd_frames(data, frames=3):
    step = len(data) // frames + 1
    out = b""
    for at in range(0, len(data), step):
        out += zstandard.ZstdCompressor(level=3).compress(data[at:at + step])
    return out


def gzip_members(data, members=3):
    step = len(data) // members + 1
    return b"".join(gzip.compress(data[at:at + step]) for at in range(0, len(data), step))


def bad_rows(folder):
    return [json.loads(line) for line in (folder / "bad_records.jsonl").read_text().splitlines()]


def test_compression_is_found_by_content_and_changes_nothing(run, tmp_path):
    texts = some_texts(3000)
    data = jsonl(texts)
    # A frame that is to be skipped stands in front.
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    inputs = {"plain.jsonl": data, "a.jsonl.gz": gzip_members(data), "a.jsonl.zst": zstd_frames(data),
              "b.jsonl.zst": skippable + zstd_frames(data), "padded.jsonl.gz": gzip.compress(data) + bytes(1000),
              "unnamed.jsonl": zstd_frames(data)}
    for name, content in inputs.items():
        (tmp_path / name).write_bytes(content)
        done = run("shard", "--input", name, "--out", "out_" + name)
        assert done.rc == 0, done.stderr
        assert documents_of(tmp_path / ("out_" + name)) == texts, name


@pytest.mark.parametrize("unit, expected", [("file", ["one\n\ntwo\nthree\n"]), ("line", ["one", "two", "three"]),
                                            ("blank-line", ["one", "two\nthree"])])
def test_compressed_plain_text(run, tmp_path, unit, expected):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfone\n\ntwo\nthree\n"))
    assert run("shard", "--input", "a.txt.gz", "--document", unit, "--out", "out").rc == 0
    assert documents_of(tmp_path / "out") == expected


@pytest.mark.parametrize("ending, compress, word", [("gz", gzip.compress, "gzip"),
                                                    ("zst", zstandard.ZstdCompressor().compress, "zstd")])
def test_a_truncated_tail_is_named_with_its_line(run, tmp_path, ending, compress, word):
    texts = [f"{i} " + "".join(random.Random(i).choices("abcdefghij", k=200)) for i in range(20_000)]
    whole = compress(jsonl(texts))
    name = f"a.jsonl.{ending}"
    (tmp_path / name).write_bytes(whole[:len(whole) * 2 // 3])
    good = tmp_path / "good"
    done = run("shard", "--input", name, "--on-bad-record", "skip", "--out", "good")
    assert done.rc == 0
    kept = documents_of(good)
    assert 5000 < len(kept) < 20_000 and kept == texts[:len(kept)]
    row = bad_rows(good)[0]
    assert (row["line"], row["reason"]) == (len(kept) + 1, f"truncated {word} data")
    assert row["offset"] == len(jsonl(kept))
    assert run("shard", "--input", name, "--out", "o").stderr.splitlines()[-1] == (
        f"plimsoll-shard: {name}:{len(kept) + 1}: truncated {word} data. mend it or use --on-bad-record skip")
    assert run("shard", "--input", name, "--on-bad-record", "replace", "--out", "replaced").rc == 0
    assert documents_of(tmp_path / "replaced") == kept + [REPLACEMENT]


def test_damaged_compressed_data_are_named(run, tmp_path):
    data = jsonl(some_texts(3000))
    for name, content, reason in [("a.jsonl.gz", bytearray(gzip.compress(data)), "damaged gzip data ("),
                                  ("a.jsonl.zst", bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(data)),
                                   "damaged zstd data (")]:
        content[-6 if name.endswith("gz") else -2] ^= 0xFF  # in the checksum
        (tmp_path / name).write_bytes(content)
        done = run("shard", "--input", name, "--out", "o")
        assert done.rc == 2 and reason in done.stderr.splitlines()[-1], done.stderr


def test_standard_input_is_read_as_any_file(tools, run, tmp_path):
    texts = some_texts(500)
    for data in (jsonl(texts), gzip.compress(jsonl(texts)), zstd_frames(jsonl(texts))):
        done = subprocess.run([tools / "plimsoll-shard", "--input", "-", "--format", "jsonl", "--out", "out", "--force"],
                              input=data, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert documents_of(tmp_path / "out") == texts


def test_lists_and_patterns_name_inputs(run, tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_bytes(jsonl([name]))
    (tmp_path / "in.list").write_text("# the order counts\nc.jsonl\n\n*.jsonl\n")
    for args in (["--input", "@in.list"], ["--input-list", "in.list"]):
        assert run("shard", *args, "--out", "out", "--force").rc == 0
        assert documents_of(tmp_path / "out") == ["c", "a", "b"]


def test_replaced_records_keep_their_place(run, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text":"a"}\nno\n{"text":"b"}\n{"text":1}\n')
    done = run("shard", "--input", "a.jsonl", "--on-bad-record", "replace", "--out", "out")
    assert done.stdout.splitlines()[0] == "documents  4   empty 0   bad 2 (replaced, see out/bad_records.jsonl)"
    assert documents_of(tmp_path / "out") == ["a", REPLACEMENT, "b", REPLACEMENT]
    assert [row["line"] for row in bad_rows(tmp_path / "out")] == [2, 4]


def write_parquet(path, table, **options):
    pq.write_table(table, path, **options)


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip"])
def test_parquet_gives_the_strings_of_its_column(run, tmp_path, codec):
    texts = some_texts(5000)
    write_parquet(tmp_path / "a.parquet", pa.table({"id": list(range(5000)), "text": texts}), compression=codec,
                  row_group_size=700)
    done = run("shard", "--input", "a.parquet", "--out", "out")
    assert done.rc == 0, done.stderr
    assert documents_of(tmp_path / "out") == texts


@pytest.mark.parametrize("kind", ["large_string", "dictionary", "binary", "required", "delta", "struct"])
def test_parquet_columns_of_many_types(run, tmp_path, kind):
    texts = [text for text in some_texts(40) for _ in range(50)]
    options, field = {}, "text"
    if kind == "large_string":
        table = pa.table({"text": pa.array(texts, pa.large_string())})
    elif kind == "dictionary":
        table = pa.table({"text": pa.array(texts).dictionary_encode()})
    elif kind == "binary":
        table = pa.table({"text": pa.array([text.encode() for text in texts], pa.binary())})
    elif kind == "required":
        table = pa.table([pa.array(texts)], schema=pa.schema([pa.field("text", pa.string(), nullable=False)]))
    elif kind == "delta":
        table, options = pa.table({"text": texts}), {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    else:
        table, field = pa.table({"meta": [{"body": text, "n": 1} for text in texts]}), "meta.body"
    write_parquet(tmp_path / "a.parquet", table, **options)
    assert run("shard", "--input", "a.parquet", "--text-field", field, "--out", "out").rc == 0
    assert documents_of(tmp_path / "out") == texts


def test_parquet_rows_larger_than_a_block_are_cut_between_rows(run, tmp_path):
    texts = [letter * 50_000 for letter in "ab"] * 100
    write_parquet(tmp_path / "a.parquet", pa.table({"text": pa.array(texts).dictionary_encode()}))
    assert run("shard", "--input", "a.parquet", "--block-bytes", "64KiB", "--out", "out").rc == 0
    assert documents_of(tmp_path / "out") == texts


def test_parquet_without_a_value_is_a_bad_record(run, tmp_path):
    write_parquet(tmp_path / "a.parquet", pa.table({"text": ["a", None, "b", "long " * 10, None]}))
    write_parquet(tmp_path / "s.parquet", pa.table({"m": [{"t": "a"}, None, {"t": None}, {"t": "b"}]}))
    assert run("shard", "--input", "a.parquet", "--out", "o").stderr.splitlines()[-1] == (
        "plimsoll-shard: a.parquet:2: field 'text' is null, not a string. mend it or use --on-bad-record skip")
    assert run("shard", "--input", "a.parquet", "--on-bad-record", "skip", "--max-record-bytes", "20B", "--out", "skip").rc == 0
    assert documents_of(tmp_path / "skip") == ["a", "b"]
    assert [(row["line"], row["reason"]) for row in bad_rows(tmp_path / "skip")] == [
        (2, "field 'text' is null, not a string"), (4, "longer than --max-record-bytes 20"),
        (5, "field 'text' is null, not a string")]
    assert run("shard", "--input", "s.parquet", "--text-field", "m.t", "--on-bad-record", "replace", "--out", "s").rc == 0
    assert documents_of(tmp_path / "s") == ["a", REPLACEMENT, REPLACEMENT, "b"]


def test_parquet_that_cannot_be_used_says_why(run, tmp_path):
    write_parquet(tmp_path / "a.parquet", pa.table({"id": [1], "body": ["x"], "meta": [{"lang": "en"}], "all": [["x"]]}))
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:len(whole) - 20])
    for args, message in [
            (["a.parquet"], "a.parquet: no field 'text' (columns: id body meta.lang all.list.element)"),
            (["a.parquet", "--text-field", "id"], "a.parquet: field 'id' is int64, not a string"),
            (["a.parquet", "--text-field", "all.list.element"],
             "a.parquet: field 'all.list.element' is inside a list, of which a row has any number"),
            (["cut.parquet"], "cut.parquet: ")]:
        done = run("shard", "--input", *args, "--out", "o")
        assert done.rc == 2
        assert done.stderr.splitlines()[-1].startswith("plimsoll-shard: " + message), done.stderr


def test_nothing_but_parquet_loads_arrow(tools):
    linked = subprocess.run(["ldd", tools / "plimsoll-shard"], capture_output=True, text=True, check=True).stdout
    assert "arrow" not in linked and "parquet" not in linked
