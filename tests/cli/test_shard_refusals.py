"""What plimsoll-shard refuses before it works, what it says of it, and that nothing half done stays."""

import json
import os

import pytest

REFUSED = [
    (["--input", "a.jsonl", "--out", "o", "--template", "llama3"],
     "--template is for --format chat alone (here it is auto). leave it out"),
    (["--input", "a.jsonl", "--out", "o", "--format", "jsonl", "--prompt-field", "q"],
     "--prompt-field is for --format prompt-completion alone (here it is jsonl). leave it out"),
    (["--input", "a.jsonl", "--out", "o", "--format", "tokens", "--text-field", "body"],
     "--text-field is for plain texts (--format tokens has fields of its own). leave it out"),
    (["--input", "a.jsonl", "--out", "o", "--format", "tokens", "--max-digits", "0.5"],
     "limits of bytes, characters and lines are for plain texts (--format tokens is none). use --min-tokens and --max-tokens"),
    (["--input", "a.jsonl", "--out", "o", "--min-bytes", "10", "--max-bytes", "5"],
     "--min-bytes 10 is above --max-bytes 5 (no document is both)"),
    (["--input", "a.jsonl", "--out", "o", "--min-tokens", "100"],
     "no documents in 1 input file (1 empty, 0 bad, 9 dropped by filters). nothing was written"),
    (["--input", "chat.jsonl", "--out", "o", "--format", "tokens"],
     "no documents in 1 input file (0 empty, 0 bad, 1 without a trained token). nothing was written"),
    (["--input", "a.jsonl", "--out", "o", "--tokenizer", "d.json"],
     "cannot read tokenizer 'd.json' (a directory). name the file in it"),
    (["verfy", "in"],
     "unknown command 'verfy' (commands: merge inspect verify export import train-bpe dedup split decode). nearest: verify"),
    (["a.jsonl", "--out", "o"], "unexpected argument 'a.jsonl' (an option without its dashes?). see --help"),
    (["merge", "in", "./in/", "--out", "o"],
     "'./in/' is named twice (its documents would be there twice). name it once"),
    (["split", "in", "--out", "x/=50%", "x=50%"], "--out names 'x' twice"),
    (["split", "in", "--out", "x=50%", "x/y=50%"],
     "--out 'x' and 'x/y' lie one in the other (each is made and replaced whole). choose directories side by side"),
    (["split", "in", "--out", "x=nan%", "y=50%"], "--out: 'nan' is not a number (such as 0.1 or 6e-4)"),
    (["split", "in", "--out", "in=50%", "x=50%", "--force"],
     "--out names the shards that are split ('in'). choose another directory"),
    (["import", "m.idx", "--from", "megatron", "--vocab", "99999999999", "--eod", "1", "--out", "o"],
     "--vocab: 99999999999 is too large (at most 4294967296)"),
    (["import", "a.jsonl", "--from", "ds", "--vocab", "300", "--eod", "1", "--out", "o"],
     "cannot open 'a.jsonl.index' (no such file or directory)"),
    (["verify", "none.idx"], "cannot open 'none.idx' (no such file or directory)"),
    (["train-bpe", "--input", "a.jsonl", "--out", "t.json", "--special", ""],
     "a special token is empty. give each of --special a text"),
]


@pytest.fixture
def files(run, tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": "" if i == 9 else f"text {i}"}) + "\n" for i in range(10)))
    (tmp_path / "chat.jsonl").write_text('{"input_ids":[5],"labels":[-100]}\n')
    (tmp_path / "d.json").mkdir()
    done = run("shard", "--input", "a.jsonl", "--out", "in", "--shard-tokens", 20)
    assert done.rc == 0, done.stderr


@pytest.mark.usefixtures("files")
def test_what_is_wrong_is_one_line_with_exit_2_and_leaves_nothing(run, tmp_path):
    before = sorted(os.listdir(tmp_path))
    for args, message in REFUSED:
        done = run("shard", *args)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("input ")]
        assert (done.rc, lines) == (2, ["plimsoll-shard: " + message]), args
        assert done.stdout == "" and sorted(os.listdir(tmp_path)) == before, args
    assert run("shard", "verify", "in").rc == 0


@pytest.mark.usefixtures("files")
def test_a_tokenizer_is_written_into_a_folder_that_is_made(run, tmp_path):
    done = run("shard", "train-bpe", "--input", "a.jsonl", "--vocab", 260, "--out", "deep/er/tokenizer.json")
    assert done.rc == 0, done.stderr
    assert os.listdir(tmp_path / "deep" / "er") == ["tokenizer.json"]


@pytest.mark.usefixtures("files")
def test_damaged_shards_end_whatever_copies_them_with_exit_93(run, tmp_path):
    path = tmp_path / "in" / "shard_00001.h5"
    import h5py
    with h5py.File(path) as file:
        at = file["tokens"].id.get_offset()
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    before = sorted(os.listdir(tmp_path))
    for args in (["merge", "in", "--out", "o"], ["dedup", "in", "--out", "o"], ["split", "in", "--out", "o=50%", "p=50%"],
                 ["export", "in", "--to", "ds", "--out", "o"]):
        done = run("shard", *args)
        assert done.rc == 93, args
        assert "in/shard_00001.h5: block 1 of /tokens is damaged (crc32c " in done.message, args
        assert sorted(os.listdir(tmp_path)) == before, args
