"""plimsoll-shard as a user runs it: what it reports, what it refuses and how it says so."""

import json
import os
import shutil
import signal
import subprocess

import h5py
import pytest

BYTES_SHA = "314068a34107570dd113104c1dc2f3517546c524c7fd25cb34dd4295b7ae2b7e"


def write_jsonl(path, texts, field="text"):
    path.write_text("".join(json.dumps({field: text}) + "\n" for text in texts))
    return path


@pytest.fixture
def words(tmp_path):
    return write_jsonl(tmp_path / "words.jsonl", [f"document {i} of many" for i in range(200)])


@pytest.fixture
def shards(run, tmp_path, words):
    done = run("shard", "--input", words, "--out", tmp_path / "out", "--shard-tokens", 1000, "--validation", "10%")
    assert done.rc == 0, done.stderr
    return tmp_path / "out"


def test_reports_what_it_did_on_stdout_and_what_it_reads_on_stderr(run, tmp_path, words):
    done = run("shard", "--input", "words.jsonl", "--out", "out", "--shard-tokens", 1000, "--validation", "10%")
    assert done.rc == 0
    assert done.stderr == f"input      1 file, 6.49 kB          tokenizer  bytes, 257 ids, sha256 {BYTES_SHA[:12]}...\n"
    lines = done.stdout.splitlines()
    assert lines[0] == "documents  200   empty 0   bad 0"
    assert lines[1] == "tokens     4,090   0.95 bytes/token   longest document 21"
    assert lines[2] == "lengths    tokens of a document: p1 19 p5 19 p25 20 p50 20 p75 21 p95 21 p99 21 max 21"
    assert lines[3].startswith("validation ") and lines[3].endswith(", 1 shard")
    assert lines[4].startswith("written    5 shards, u16, ") and "out/manifest.json" in lines[4]
    assert "read " in lines[4] and "parse " in lines[4] and "tokenize " in lines[4] and "write " in lines[4]
    shards = [f"shard_0000{i}.h5" for i in range(4)]
    assert sorted(os.listdir(tmp_path / "out")) == ["manifest.json", *shards, "validation"]
    assert sorted(os.listdir(tmp_path)) == ["out", "words.jsonl"]


def test_json_report_and_manifest_agree(run, tmp_path, words):
    done = run("shard", "--input", words, "--out", "out", "--validation", "10%", "--json")
    report = json.loads(done.stdout)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert report["schema_version"] == 1
    assert report["train"]["documents"] + report["validation"]["documents"] == 200
    assert manifest["format"] == "plimsoll-token-shards" and manifest["format_version"] == [1, 0]
    assert manifest["tokenizer"] == {"name": "bytes", "vocab": 257, "eod": 256, "sha256": BYTES_SHA}
    for name in ("train", "validation"):
        rows = [row for row in manifest["shards"] if row["set"] == name]
        assert sum(row["tokens"] for row in rows) == manifest["totals"][name]["tokens"] == report[name]["tokens"]
        for row in rows:
            assert (tmp_path / "out" / row["path"]).stat().st_size == row["bytes"]


def test_run_file_gives_the_seed_of_the_validation_choice(run, tmp_path, words):
    (tmp_path / "run.ini").write_text("[run]\nseed = 7\n[data.words]\nshards = $PWD/not_there_yet/*.h5\n")

    def chosen(out, *args):
        assert run("shard", "--input", words, "--out", out, "--validation", "10%", *args).rc == 0
        return (tmp_path / out / "validation" / "shard_00000.h5").read_bytes()

    by_file = chosen("a", "--config", "run.ini")
    assert by_file == chosen("b", "--seed", 7)
    assert by_file != chosen("c")


def test_help_is_quick_and_names_every_option(run):
    done = run("shard", "--help")
    assert done.rc == 0 and done.stderr == ""
    for option in ("--input", "--tokenizer", "--out", "--format", "--document", "--text-field", "--shard-tokens",
                   "--validation", "--on-bad-record", "--max-record-bytes", "--force", "--dry-run", "--json",
                   "--threads", "--block-bytes", "--special-in-text", "--eod", "--shard-index", "--num-shards", "--restart",
                   "--input-list", "inspect"):
        assert option in done.stdout
    assert "memory is at most 32 MiB + 24 x (threads + 1) x block-bytes + 9 x the longest record" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.split("examples")[0].splitlines())) <= 100


@pytest.mark.parametrize("args, rc, message", [
    (["--out", "o"], 2, "--input is missing (text files and patterns)"),
    (["--input", "words.jsonl"], 2, "--out is missing (directory of the shards). give it, or --dry-run"),
    (["--input", "none.jsonl", "--out", "o"], 2, "cannot read 'none.jsonl' (no such file or directory)"),
    (["--input", "text/*.jsonl", "--out", "o"], 2, "no file matches 'text/*.jsonl'"),
    (["--input", "loop.txt", "--out", "o"], 2, "cannot read 'loop.txt' (too many levels of symbolic links)"),
    (["--input", ".", "--out", "o"], 2, "cannot read '.' (a directory). name its files: './*.jsonl'"),
    (["--input", "words.parquet", "--out", "o"], 2, "cannot read 'words.parquet' (no such file or directory)"),
    (["--input", "a.jsonl.zst", "--out", "o"], 2,
     "cannot read 'a.jsonl.zst' (its first bytes are neither gzip nor zstd). is it complete?"),
    (["--input", "-", "--out", "o"], 2, "cannot tell the format of standard input. say --format txt or jsonl"),
    (["--input-list", "none.list", "--out", "o"], 2,
     "cannot read the list of inputs 'none.list' (no such file or directory)"),
    (["--input", "words.jsonl", "--out", "book.txt/deep/o"], 1,
     "cannot write to 'book.txt/deep' ('$PWD/book.txt': not a directory). choose another --out"),
    (["verify", "nope"], 2, "cannot open 'nope' (no such file or directory)"),
    (["inspect", "nope"], 2, "cannot open 'nope' (no such file or directory)"),
    (["inspect", "nope", "--document", "1"], 2, "cannot open 'nope' (no such file or directory)"),
    (["--input", "words.csv", "--out", "o"], 2,
     "cannot tell the format of 'words.csv' (endings known: .jsonl .ndjson .txt .text .md .parquet, the first five with "
     ".gz or .zst behind them too). say --format txt, jsonl or parquet"),
    (["--input", "words.jsonl", "--tokenizer", "byte", "--out", "o"], 2, "unknown tokenizer 'byte'. known: bytes, or a file that ends in .json, .tiktoken or .model"),
    (["--input", "words.jsonl", "--tokenizer", "tokenizer.json", "--out", "o"], 2,
     "cannot read tokenizer 'tokenizer.json' (no such file). give the path of a .json, .tiktoken or .model file"),
    (["--input", "words.jsonl", "--out", "full"], 2,
     "'full' exists and is not empty. choose another --out, or --force to replace the shards in it"),
    (["--input", "words.jsonl", "--out", "full", "--force"], 2,
     "'full' holds 'thesis.txt', which plimsoll-shard did not write (--force replaces token shards only). "
     "choose another --out"),
    (["--input", "words.jsonl", "--out", "words.jsonl"], 2,
     "'words.jsonl' exists and is not a directory. choose another --out"),
    (["--input", "words.jsonl", "--out", "o", "--validation", "0.5"], 2,
     "--validation: validation '0.5' is not a percentage. write it like 0.5%"),
    (["--input", "words.jsonl", "--out", "o", "--validation", "100%"], 2,
     "--validation: validation '100%' is out of range (at least 0%, less than 100%)"),
    (["--input", "book.txt", "--out", "o", "--validation", "1%"], 2,
     "--validation 1% chose none of 1 documents. choose another share, or cut the text into more documents "
     "(--document)"),
    (["--input", "book.txt", "--out", "o", "--validation", "99.9%"], 2,
     "--validation 99.9% chose all of 1 documents. choose another share, or cut the text into more documents "
     "(--document)"),
    (["--input", "empty.jsonl", "--out", "o"], 2,
     "no documents in 1 input file (2 empty, 0 bad). nothing was written"),
    (["--input", "bad.jsonl", "--out", "o"], 2,
     "bad.jsonl:2: not valid json (unclosed string). mend it or use --on-bad-record skip"),
    (["--input", "bad.jsonl", "--text-field", "body", "--out", "o"], 2,
     "bad.jsonl:1: no field 'body' (fields: text). mend it or use --on-bad-record skip"),
])
def test_bad_input_is_one_line_and_leaves_nothing(run, tmp_path, words, args, rc, message):
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    (tmp_path / "words.csv").write_text("a,b\n")
    (tmp_path / "a.jsonl.zst").write_text("")
    (tmp_path / "book.txt").write_text("one text")
    (tmp_path / "empty.jsonl").write_text('{"text":""}\n{"text":""}\n')
    (tmp_path / "bad.jsonl").write_text('{"text":"a"}\n{"text":"b}\n{"text":"c"}\n')
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years of work")
    before = sorted(os.listdir(tmp_path))
    done = run("shard", *args)
    assert done.rc == rc
    last = done.stderr.splitlines()[-1]
    assert last == "plimsoll-shard: " + message.replace("$PWD", str(tmp_path))
    assert len([line for line in done.stderr.splitlines() if not line.startswith("input ")]) == 1
    assert done.stdout == ""
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "full" / "thesis.txt").read_text() == "years of work"


def test_unreadable_file(run, tmp_path, words):
    if os.geteuid() == 0:
        pytest.skip("root reads every file")
    words.chmod(0)
    done = run("shard", "--input", words, "--out", "o")
    assert (done.rc, done.message) == (2, f"plimsoll-shard: cannot open '{words}' (permission denied)")


def test_skipped_records_are_listed(run, tmp_path):
    content = '{"text":"a"}\n{"text":"b}\n{"text":7}\n\n{"text":"c"}\n{"te'
    (tmp_path / "bad.jsonl").write_text(content)
    done = run("shard", "--input", "bad.jsonl", "--on-bad-record", "skip", "--out", "out")
    assert done.rc == 0
    assert done.stdout.splitlines()[0] == "documents  2   empty 0   bad 3 (skipped, see out/bad_records.jsonl)"
    rows = [json.loads(line) for line in (tmp_path / "out" / "bad_records.jsonl").read_text().splitlines()]
    assert [(row["file"], row["line"], row["offset"]) for row in rows] == [
        ("bad.jsonl", 2, 13), ("bad.jsonl", 3, 25), ("bad.jsonl", 6, content.index('{"te', 50))]
    assert rows[1]["reason"] == "field 'text' is a number, not a string"
    assert rows[2]["reason"] == ("not valid json (unclosed string), in a last line without line feed (truncated file?)")
    assert run("shard", "verify", "out").rc == 0


def test_mended_text_is_counted(run, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text":"a\xff\xe2\x82"}\n{"text":"\\ud800"}\n{"text":""}\n')
    done = run("shard", "--input", "a.jsonl", "--out", "out")
    assert done.stdout.splitlines()[0] == (
        "documents  3   empty 1   bad 0   invalid utf-8 2 (as U+FFFD)   lone surrogates 1 (as U+FFFD)")
    assert run("shard", "inspect", "out", "--document", "0").stdout == "a\ufffd\ufffd\n"


def test_existing_shards_are_replaced_by_force_alone(run, tmp_path, words, shards):
    before = (shards / "manifest.json").read_bytes()
    done = run("shard", "--input", words, "--out", shards)
    assert done.rc == 2 and "exists and is not empty" in done.message
    assert (shards / "manifest.json").read_bytes() == before
    done = run("shard", "--input", words, "--out", shards, "--force")
    assert done.rc == 0, done.stderr
    assert sorted(os.listdir(shards)) == ["manifest.json", "shard_00000.h5"]
    assert sorted(os.listdir(tmp_path)) == ["out", "words.jsonl"]


def test_an_empty_directory_is_a_good_output(run, tmp_path, words):
    (tmp_path / "out").mkdir()
    assert run("shard", "--input", words, "--out", "out").rc == 0
    assert run("shard", "verify", "out").rc == 0


def test_dry_run_predicts_and_writes_nothing(run, tmp_path, words):
    args = ["--input", words, "--out", "out", "--shard-tokens", 1000, "--validation", "10%", "--json"]
    predicted = json.loads(run("shard", *args, "--dry-run").stdout)
    assert sorted(os.listdir(tmp_path)) == ["words.jsonl"]
    done = json.loads(run("shard", *args).stdout)
    for name in ("train", "validation"):
        for key in ("shards", "documents", "tokens", "text_bytes"):
            assert predicted[name][key] == done[name][key]
    text = run("shard", "--input", words, "--dry-run").stdout
    assert "dry run    would write 1 shard, u16; nothing was written" in text


def test_disk_full_leaves_nothing_and_says_so(run, tmp_path, words):
    for limit in (0, 5000, 20000):
        done = run("shard", "--input", words, "--out", "out", "--shard-tokens", 1000,
                   env={"PLIMSOLL_FAULT_ENOSPC_AFTER": limit})
        assert done.rc == 1
        last = done.stderr.splitlines()[-1]
        assert last.startswith("plimsoll-shard: ") and last.endswith("(no space left on device)")
        assert sorted(os.listdir(tmp_path)) == ["words.jsonl"]


def test_a_really_full_disk(run, tmp_path, words):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False,
                                       capture_output=True).returncode != 0:
        pytest.skip("no right to mount a small tmpfs")
    try:
        (tmp_path / "big.txt").write_text("text " * 40000)
        done = run("shard", "--input", "big.txt", "--out", disk / "out")
        assert done.rc == 1
        assert done.stderr.splitlines()[-1].endswith("(no space left on device)")
        assert os.listdir(disk) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_inspect_shows_directory_shard_and_document(run, shards):
    text = run("shard", "inspect", "out").stdout
    assert text.startswith("out   token shards   u16\n")
    assert "shard-tokens 1000" in text and "validation/shard_00000.h5" in text
    assert text.splitlines()[-1].split()[:3] == ["total", "200", "4,090"]
    shard = run("shard", "inspect", "out/shard_00000.h5").stdout
    assert f"tokenizer  bytes, 257 ids, sha256 {BYTES_SHA[:12]}..." in shard
    assert "loss mask  none, every token counts" in shard
    assert json.loads(run("shard", "inspect", "out/shard_00000.h5", "--json").stdout)["vocab"] == 257
    assert json.loads(run("shard", "inspect", "out", "--json").stdout)["totals"]["train"]["shards"] == 4
    assert run("shard", "inspect", "out", "--document", "0").stdout == "document 0 of many\n"
    all_documents = {run("shard", "inspect", "out", "--document", str(i)).stdout for i in (0, 50, 100, 199)}
    assert len(all_documents) == 4
    assert run("shard", "inspect", "out", "--document", "200").message == (
        "plimsoll-shard: no document 200 in 'out' (it has 200, counted from 0)")


def test_verify_says_ok_or_names_file_and_fault(run, tmp_path, shards):
    done = run("shard", "verify", "out", "out/shard_00000.h5")
    assert done.rc == 0
    assert done.stdout.startswith("verify     ok: 6 shards, ") and done.stdout.endswith("every checksum matches\n")
    assert json.loads(run("shard", "verify", "out", "--json").stdout)["verdict"] == "ok"

    def broken(change, *arguments):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(shards, tmp_path / "copy")
        change(tmp_path / "copy")
        done = run("shard", "verify", *(arguments or ["copy"]))
        assert done.rc == 2 and done.stdout == ""
        return done.message.removeprefix("plimsoll-shard: ")

    def flip(folder):
        path = folder / "shard_00001.h5"
        with h5py.File(path) as file:
            at = file["tokens"].id.get_offset() + 17
        data = bytearray(path.read_bytes())
        data[at] ^= 4
        path.write_bytes(data)

    message = broken(flip)
    assert message.startswith("copy/shard_00001.h5: block 1 of /tokens is damaged (crc32c ")
    assert message.endswith("). make the shard again or restore a copy")
    assert broken(flip, "copy/shard_00001.h5") == message
    assert run("shard", "inspect", "copy", "--document", "50").message.startswith(
        "plimsoll-shard: copy/shard_00001.h5: block 1 of /tokens is damaged")

    # One bit at many places of a shard, in data, tables, HDF5's structures and padding: none passes.
    clean = (shards / "shard_00001.h5").read_bytes()
    for at in range(0, len(clean), max(1, len(clean) // 60)):
        def flip_at(folder, at=at):
            data = bytearray(clean)
            data[at] ^= 1 << at % 8
            (folder / "shard_00001.h5").write_bytes(data)

        assert broken(flip_at).startswith(("copy/shard_00001.h5: ", "cannot ", "not ")), at

    def flip_padding(folder):
        path = folder / "shard_00001.h5"
        data = bytearray(path.read_bytes())
        with h5py.File(path) as file:
            at = max(file[name].id.get_offset() for name in ("tokens", "documents/ends", "documents/text_bytes")) - 1
        data[at] ^= 1
        path.write_bytes(data)

    message = broken(flip_padding)
    assert "copy/shard_00001.h5: " in message

    def truncate(folder):
        os.truncate(folder / "shard_00002.h5", 3000)

    size = (shards / "shard_00002.h5").stat().st_size
    assert broken(truncate) == f"copy/shard_00002.h5: truncated file (3000 bytes, the manifest says {size})"
    assert broken(truncate, "copy/shard_00002.h5").startswith("copy/shard_00002.h5: truncated file")
    assert run("shard", "inspect", "copy/shard_00002.h5").rc == 2
    assert broken(lambda folder: os.remove(folder / "shard_00000.h5")) == (
        "copy/shard_00000.h5: is missing (the manifest lists it). make the shards again")
    assert broken(lambda folder: shutil.copy(folder / "shard_00000.h5", folder / "validation" / "shard_00007.h5")) == (
        "copy/validation/shard_00007.h5: is not in the manifest. remove it or make the shards again")
    assert broken(lambda folder: (folder / "manifest.json").write_text("{")) == (
        "copy/manifest.json: not valid json (at byte 2)")
    assert broken(lambda folder: (folder / "manifest.json").write_text("{}")) == (
        "copy/manifest.json: not a manifest of token shards")
    assert broken(lambda folder: os.remove(folder / "manifest.json")) == (
        "'copy' is no directory of token shards (no manifest.json in it)")


def test_a_shard_of_another_tokenizer_is_found(run, tmp_path, shards):
    with h5py.File(shards / "shard_00001.h5", "r+") as file:
        file.attrs.modify("tokenizer_sha256", BYTES_SHA.replace("3", "4"))
    done = run("shard", "verify", "out")
    assert done.rc == 2
    assert "out/shard_00001.h5: " in done.message
    assert run("shard", "inspect", "out", "--document", "50").message.startswith(
        "plimsoll-shard: out/shard_00001.h5: its tokenizer 'bytes' (sha256 414068a44107) is not the one of this")


def test_terminated_run_is_gone_on_with(tools, run, tmp_path):
    (tmp_path / "many.jsonl").write_bytes(b'{"text":"x"}\n' * 4_000_000)
    process = subprocess.Popen([tools / "plimsoll-shard", "--input", "many.jsonl", "--out", "out"], cwd=tmp_path,
                               stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr.readline().startswith("input ")
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 75
    assert stderr.splitlines()[-1] == (
        "plimsoll-shard: stopped by SIGTERM (what is done is kept). run the same command again to go on")
    assert not (tmp_path / "out").exists()
    assert run("shard", "--input", "many.jsonl", "--out", "out").rc == 0
    assert sorted(os.listdir(tmp_path)) == ["many.jsonl", "out"]


@pytest.mark.parametrize("args, message", [
    (["--shard-index", 0], "--shard-index and --num-shards go together. give both"),
    (["--num-shards", 4], "--shard-index and --num-shards go together. give both"),
    (["--shard-index", 4, "--num-shards", 4], "--shard-index 4 is not below --num-shards 4 (it counts from 0)"),
])
def test_parts_are_named_whole(run, words, args, message):
    assert run("shard", "--input", words, "--out", "o", *args).message == "plimsoll-shard: " + message
