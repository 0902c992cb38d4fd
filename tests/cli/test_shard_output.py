"""What plimsoll-shard writes: read by h5py, the same bytes every time, whole or not there, in bounded memory."""

import filecmp
import json
import os
import random
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

EOD = 256


def documents_of(folder, part=""):
    """Documents as byte strings, by h5py alone (docs/token_shards.md)."""
    found = []
    for path in sorted((folder / part).glob("shard_*.h5")):
        with h5py.File(path, "r") as file:
            assert file.attrs["format"] == b"plimsoll-token-shard"
            assert list(file.attrs["format_version"]) == [1, 0]
            assert file.attrs["complete"] == 1 and file.attrs["vocab"] == 257
            tokens, ends = file["tokens"][:], file["documents/ends"][:]
            assert tokens.dtype == np.uint16 and ends[-1] == len(tokens)
            assert file["tokens"].chunks is None and file["tokens"].compression is None
            sizes = file["documents/text_bytes"][:]
            assert file.attrs["text_bytes"] == sizes.sum()
        begin = 0
        for end, size in zip(ends, sizes):
            assert tokens[end - 1] == EOD and end - begin - 1 == size
            found.append(tokens[begin:end - 1].astype(np.uint8).tobytes())
            begin = end
    return found


def crc32c(data):
    """Bit by bit after RFC 3720 B.4."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def random_texts(count, seed=1):
    rng = random.Random(seed)
    alphabet = "abc \n\t\"\\\u00e9\u2028\u65e5\U0001f600\x00\x7f"
    return ["".join(rng.choices(alphabet, k=rng.randrange(200))) for _ in range(count)]


def write_jsonl(path, texts):
    path.write_text("".join(json.dumps({"id": i, "text": text}, ensure_ascii=i % 2 == 0) + "\n"
                            for i, text in enumerate(texts)), newline="\n")
    return path


def same_files(a, b):
    names = sorted(str(path.relative_to(a)) for path in a.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(b)) for path in b.rglob("*") if path.is_file())
    assert filecmp.cmpfiles(a, b, names, shallow=False) == (names, [], [])


def test_h5py_reads_the_bytes_of_the_input(run, tmp_path):
    texts = random_texts(3000)
    write_jsonl(tmp_path / "a.jsonl", texts)
    assert run("shard", "--input", "a.jsonl", "--out", "out", "--shard-tokens", 50_000).rc == 0
    assert len(list((tmp_path / "out").glob("*.h5"))) > 3
    assert documents_of(tmp_path / "out") == [text.encode() for text in texts if text]
    with h5py.File(tmp_path / "out" / "shard_00000.h5") as file:
        raw = file["tokens"][:].tobytes()
        block = file["crc"].attrs["block_bytes"]
        blocks = [raw[at:at + block] for at in range(0, len(raw), block)]
        assert list(file["crc/tokens"][:]) == [crc32c(data) for data in blocks]
        assert file["tokens"].attrs["crc32c"] == crc32c(raw)
        assert list(file["crc/document_ends"][:]) == [crc32c(file["documents/ends"][:].tobytes())]


@pytest.mark.parametrize("unit, expected", [
    ("file", [b"one\r\ntwo\n\nthree\n"]),
    ("line", [b"one", b"two", b"three"]),
    ("blank-line", [b"one\r\ntwo", b"three"]),
])
def test_units_of_plain_text(run, tmp_path, unit, expected):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n\nthree\n")
    assert run("shard", "--input", "a.txt", "--document", unit, "--out", "out").rc == 0
    assert documents_of(tmp_path / "out") == expected


def test_overlapping_patterns_count_a_file_once(run, tmp_path):
    write_jsonl(tmp_path / "b.jsonl", ["second"])
    write_jsonl(tmp_path / "a.jsonl", ["first"])
    os.link(tmp_path / "a.jsonl", tmp_path / "link.jsonl")
    assert run("shard", "--input", "*.jsonl", "a.jsonl", "./b.jsonl", "--out", "out").rc == 0
    assert documents_of(tmp_path / "out") == [b"first", b"second"]


def test_output_is_the_same_bytes_every_time(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", random_texts(500))
    args = ["--input", "a.jsonl", "--shard-tokens", 20_000, "--validation", "10%"]
    assert run("shard", *args, "--out", "first").rc == 0
    time.sleep(1.1)
    (tmp_path / "deeper").mkdir()
    assert run("shard", *args, "--out", tmp_path / "deeper" / "second").rc == 0
    same_files(tmp_path / "first", tmp_path / "deeper" / "second")


def test_validation_is_chosen_by_text_not_by_place(run, tmp_path):
    texts = [f"text number {i}" for i in range(2000)]
    write_jsonl(tmp_path / "a.jsonl", texts)
    write_jsonl(tmp_path / "b.jsonl", texts[::-1] + ["more"] + texts[:100])
    for name in "ab":
        assert run("shard", "--input", f"{name}.jsonl", "--out", name, "--validation", "5%").rc == 0
    chosen = set(documents_of(tmp_path / "a", "validation"))
    assert 60 < len(chosen) < 140, "5 % of 2,000: five standard deviations are 49"
    assert set(documents_of(tmp_path / "b", "validation")) - {b"more"} == chosen
    assert not chosen & set(documents_of(tmp_path / "a"))
    assert not chosen & set(documents_of(tmp_path / "b")), "copies stand on one side"
    assert run("shard", "--input", "a.jsonl", "--out", "c", "--validation", "10%").rc == 0
    assert chosen < set(documents_of(tmp_path / "c", "validation")), "a larger share keeps what a smaller one chose"


POINTS = ["token_shard_create", "token_shard_sync", "token_shard_rename", "token_shard_rename:2",
          "token_shard_rename:4", "corpus_manifest", "corpus_publish"]


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_step_nothing_is_half_visible(run, tmp_path, point):
    write_jsonl(tmp_path / "a.jsonl", random_texts(500))
    args = ["--input", "a.jsonl", "--shard-tokens", 20_000, "--validation", "10%"]
    assert run("shard", *args, "--out", "good").rc == 0
    killed = run("shard", *args, "--out", "out", env={"PLIMSOLL_CRASH_POINT": point})
    assert killed.rc == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert run("shard", *args, "--out", "out").rc == 0
    same_files(tmp_path / "good", tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "good", "out"]

    killed = run("shard", "--input", "a.jsonl", "--out", "out", "--force",
                 env={"PLIMSOLL_CRASH_POINT": point.split(":")[0]})
    assert killed.rc == -signal.SIGKILL
    same_files(tmp_path / "good", tmp_path / "out")


def test_killed_at_random_moments_nothing_is_half_visible(tools, run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", random_texts(20_000))
    args = ["--input", "a.jsonl", "--shard-tokens", "100K", "--validation", "10%"]
    start = time.monotonic()
    assert run("shard", *args, "--out", "good").rc == 0
    whole = time.monotonic() - start
    rng = random.Random(3)
    for _ in range(12):
        process = subprocess.Popen([tools / "plimsoll-shard", *args, "--out", "out"], cwd=tmp_path,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, whole))
        process.kill()
        if process.wait() == 0:
            break
        assert not (tmp_path / "out").exists() or run("shard", "verify", "out").rc == 0
        if (tmp_path / "out").exists():
            break
    done = run("shard", *args, "--out", "out", "--force")
    assert done.rc == 0, done.stderr
    same_files(tmp_path / "good", tmp_path / "out")


def test_two_runs_do_not_write_one_directory(tools, run, tmp_path):
    (tmp_path / "many.jsonl").write_bytes(b'{"text":"x"}\n' * 4_000_000)
    first = subprocess.Popen([tools / "plimsoll-shard", "--input", "many.jsonl", "--out", "out"], cwd=tmp_path,
                             stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stderr.readline().startswith("input ")
        second = run("shard", "--input", "many.jsonl", "--out", "out")
        assert second.rc == 2
        assert second.message == ("plimsoll-shard: another plimsoll-shard is writing 'out'. "
                                  "wait for it or choose another --out")
    finally:
        first.kill()
        first.communicate()


def peak_bytes(tools, tmp_path, *args):
    # A small process between this one and the tool: the system counts a parent's pages for a child until it executes.
    script = ("import resource, subprocess, sys; rc = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL); "
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(rc)")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script, tools / "plimsoll-shard", *args], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) * 1024


def test_memory_follows_the_longest_record_only(tools, tmp_path):
    linked = subprocess.run(["ldd", tools / "plimsoll-shard"], capture_output=True, text=True, check=True).stdout
    if "libasan" in linked or "libtsan" in linked:
        pytest.skip("sanitizers keep freed memory")
    threads, per_byte = 2, 9
    base = (32 << 20) + 24 * (threads + 1) * (1 << 20)
    (tmp_path / "tiny.jsonl").write_bytes(b'{"text":"tiny"}\n' * 3_000_000)
    common = ["--threads", str(threads), "--out"]
    assert peak_bytes(tools, tmp_path, "--input", "tiny.jsonl", *common, "tiny") < base
    small = base - 24 * (threads + 1) * (1 << 20) * 15 // 16
    assert peak_bytes(tools, tmp_path, "--input", "tiny.jsonl", "--block-bytes", "64KiB", *common, "small") < small
    longest = 12_000_000
    for name, byte, mended_bytes in [("a.jsonl", b"a", 1), ("a.txt", b"a", 1), ("b.txt", b"\xff", 3),
                                     ("b.jsonl", b"\xff", 3)]:
        content = b'{"text":"' + byte * longest + b'"}\n' if name.endswith("jsonl") else byte * longest
        # Long records one behind the other: only one is under way, and one is read.
        (tmp_path / name).write_bytes(content * (2 if name.endswith("jsonl") else 1))
        used = peak_bytes(tools, tmp_path, "--input", name, *common, "out_" + name)
        assert used < base + per_byte * mended_bytes * len(content), name


def test_memory_of_one_large_document(tools, tmp_path):
    linked = subprocess.run(["ldd", tools / "plimsoll-shard"], capture_output=True, text=True, check=True).stdout
    if "libasan" in linked or "libtsan" in linked:
        pytest.skip("sanitizers keep freed memory")
    size = 256 << 20
    with open(tmp_path / "a.txt", "wb") as file:
        for _ in range(256):
            file.write(b"sixteen bytes..\n" * (1 << 16))
    args = ["--input", "a.txt", "--threads", "2", "--max-record-bytes", "256MiB", "--dry-run"]
    assert peak_bytes(tools, tmp_path, *args) < (32 << 20) + 24 * 3 * (1 << 20) + 9 * size


def keeps_freed_memory(tools):
    linked = subprocess.run(["ldd", tools / "plimsoll-shard"], capture_output=True, text=True, check=True).stdout
    return "libasan" in linked or "libtsan" in linked


def test_memory_of_a_vocabulary_and_its_cache(tools, run, tmp_path):
    """docs/tokenizers.md: 35 MiB of pieces for each encoder, whatever the text: here 1.2 million different words."""
    if keeps_freed_memory(tools):
        pytest.skip("sanitizers keep freed memory")
    rng = random.Random(1)
    letters = str.maketrans("0123456789", "ghijklmnop")
    rows = [" ".join(f"{rng.getrandbits(44):x}" for _ in range(800)).translate(letters) for _ in range(1500)]
    write_jsonl(tmp_path / "a.jsonl", rows)
    (tmp_path / "b.txt").write_text("the quick brown fox jumps over the lazy dog")
    assert run("shard", "train-bpe", "--input", "b.txt", "--vocab", 280, "--out", "t.json").rc == 0
    args = ["--input", "a.jsonl", "--tokenizer", "t.json", "--threads", "1", "--block-bytes", "64KiB", "--dry-run"]
    assert peak_bytes(tools, tmp_path, *args) < (32 << 20) + 24 * 2 * (64 << 10) + (35 << 20)


def test_memory_of_dedup_is_what_it_says(tools, run, tmp_path):
    if keeps_freed_memory(tools):
        pytest.skip("sanitizers keep freed memory")
    documents = 200_000
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text":"{i % 150_000}"}}\n' for i in range(documents)))
    done = run("shard", "--input", "a.jsonl", "--out", "in", "--shard-tokens", "400K", "--json")
    in_a_shard = documents / json.loads(done.stdout)["train"]["shards"] * 1.5
    # Keys alone are 4.8 MB and 67 MB: they go to files.
    for method, limit in (("exact", 4), ("minhash", 8)):
        used = peak_bytes(tools, tmp_path, "dedup", "in", "--out", method, "--method", method, "--memory-limit", f"{limit}MiB")
        assert used < (32 << 20) + (limit << 20) + (16 << 20) + 16 * in_a_shard, method
