"""Which documents plimsoll-shard drops, and that it says why."""

import json

import pytest

TEXTS = ["a good page of words", "short", "12345 67890 12345 67890", "same\nsame\nsame\nsame\nother\n", "!!! ??? ### $$$ %%%",
         "words " + "x" * 90, ""]


def write(tmp_path, texts):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


@pytest.mark.parametrize("args, left, reasons", [
    ([], 6, {}),
    (["--min-bytes", 10], 5, {"min-bytes": 1}),
    (["--max-bytes", 30], 5, {"max-bytes": 1}),
    (["--min-tokens", 7, "--max-tokens", 30], 4, {"min-tokens": 1, "max-tokens": 1}),
    (["--min-alphabetic", 0.5], 4, {"min-alphabetic": 2}),
    (["--max-digits", 0.5, "--max-symbols", 0.5], 4, {"max-digits": 1, "max-symbols": 1}),
    (["--max-line-bytes", 50], 5, {"max-line-bytes": 1}),
    (["--max-repeated-lines", 0.5, "--min-bytes", 6], 4, {"max-repeated-lines": 1, "min-bytes": 1}),
])
def test_documents_outside_of_limits_are_dropped_and_counted(run, tmp_path, args, left, reasons):
    write(tmp_path, TEXTS)
    done = run("shard", "--input", "in.jsonl", "--out", "out", *args)
    assert done.rc == 0, done.stderr
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["totals"]["train"]["documents"] == left
    assert {name[11:]: num for name, num in manifest["input"].items() if name.startswith("dropped-by-")} == reasons
    assert manifest["input"]["documents"] == 7 and manifest["input"]["empty"] == 1 and manifest["input"]["unlabelled"] == 0
    line = done.stdout.splitlines()[0]
    if reasons:
        assert f"   dropped {sum(reasons.values())} (" in line
        assert all(f"{name} {num}" in line for name, num in reasons.items())
    else:
        assert "dropped" not in line
    assert {key for key in manifest["options"] if key.startswith(("min-", "max-")) and key != "max-record-bytes"} == {
        word[2:] for word in map(str, args) if word.startswith("--")}


def test_threads_drop_the_same(run, tmp_path):
    write(tmp_path, [text + str(i) for i in range(4000) for text in TEXTS])
    for name, threads in (("a", 1), ("b", 3)):
        done = run("shard", "--input", "in.jsonl", "--out", name, "--threads", threads, "--min-bytes", 12, "--max-digits", 0.4,
                   "--max-repeated-lines", 0.5)
        assert done.rc == 0, done.stderr
    for file in ("manifest.json", "shard_00000.h5"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
