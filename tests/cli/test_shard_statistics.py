"""The numbers that plimsoll-shard ends with, as a table and as JSON."""

import json

from spm_models import BPE, NORMAL, model

SHARES = ("p1", "p5", "p25", "p50", "p75", "p95", "p99")


def write(tmp_path, texts):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def test_lengths_times_and_rates(run, tmp_path):
    write(tmp_path, ["x" * (i % 50) for i in range(1000)])  # 0 to 49 bytes, each with an end
    report = json.loads(run("shard", "--input", "a.jsonl", "--out", "out", "--threads", 2, "--json").stdout)
    lengths = sorted(i % 50 + 1 for i in range(1000) if i % 50)
    found = report["document_tokens"]
    assert list(found) == [*SHARES, "max"] and found["max"] == 50
    for name in SHARES:
        rank = int(name[1:]) / 100 * len(lengths)
        assert lengths[max(0, int(rank) - 1)] <= found[name] <= lengths[min(int(rank), len(lengths) - 1)], name
    assert report["input"]["documents"] == 1000 and report["input"]["empty"] == 20
    assert report["input"]["longest_document_tokens"] == 50
    assert report["bytes_per_token"] == sum(n - 1 for n in lengths) / sum(lengths)
    assert report["threads"] == 2 and report["bytes_per_second"] > 0 and report["resumed_bytes"] == 0
    assert set(report["seconds"]) == {"total", "read", "parse", "tokenize", "write"}
    assert all(0 <= seconds <= 2 * 60 for seconds in report["seconds"].values())


def test_the_cache_of_pieces_is_counted(run, tmp_path):
    write(tmp_path, ["the same words again and again"] * 300)
    assert run("shard", "train-bpe", "--input", "a.jsonl", "--vocab", 270, "--out", "t.json").rc == 0
    done = run("shard", "--input", "a.jsonl", "--tokenizer", "t.json", "--out", "out", "--threads", 1)
    assert "   pieces from the cache " in done.stdout
    report = json.loads(run("shard", "--input", "a.jsonl", "--tokenizer", "t.json", "--threads", 1, "--dry-run", "--json").stdout)
    assert 0.9 * report["cache"]["lookups"] < report["cache"]["hits"] <= report["cache"]["lookups"]


def test_unknown_characters_and_their_bytes_are_counted(run, tmp_path):
    write(tmp_path, ["ab", "a\u4e2d", "\u4e2d b \u20ac"])
    pieces = [(text, -1.0, NORMAL) for text in ("a", "b", "\u2581", "ab")]
    for fallback, shown, counted in ((False, "unknown 3", ("unknown", 3)), (True, "bytes of unknown characters 9", ("byte_fallback", 9))):
        (tmp_path / "t.model").write_bytes(model(pieces, BPE, fallback, dummy=False, extra=False))
        done = run("shard", "--input", "a.jsonl", "--tokenizer", "t.model", "--out", "out", "--force")
        assert done.rc == 0, done.stderr
        assert done.stdout.splitlines()[1].endswith(f"   {shown}"), done.stdout
        manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
        assert manifest["input"][counted[0]] == counted[1]
