"""The corpora of datasets/: generated and fetched as their README says."""

import json
import shutil
import subprocess
import sys

import pytest


def test_tiny_corpus_is_what_its_generator_prints(source_dir):
    tiny = source_dir / "datasets" / "tiny"
    made = subprocess.run([sys.executable, tiny / "generate.py"], capture_output=True, check=True).stdout
    assert made == (tiny / "tiny.jsonl").read_bytes()


def test_tiny_corpus_can_be_sharded(run, source_dir):
    tiny = source_dir / "datasets" / "tiny" / "tiny.jsonl"
    done = run("shard", "--input", tiny, "--out", "out", "--validation", "5%", "--json")
    report = json.loads(done.stdout)
    assert report["input"]["documents"] == 400 and report["input"]["bad"] == 0


def test_bible_has_a_document_for_each_chapter(run, source_dir, tmp_path):
    if shutil.which("bible") is None:
        pytest.skip("the package bible-kjv is not installed")
    script = source_dir / "datasets" / "fetch_kjv.sh"
    done = subprocess.run(["sh", script, tmp_path / "text"], capture_output=True, text=True, check=True)
    assert "1189 documents" in done.stdout and done.stderr == ""
    verses = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in (tmp_path / "text" / "kjv.jsonl").read_text().splitlines()]
    assert "\n".join(row["text"] for row in rows).split("\n") == [line.split(" ", 1)[1] for line in verses.splitlines()]
    assert run("shard", "--input", "text/kjv.jsonl", "--out", "kjv", "--validation", "2%").rc == 0


def test_missing_program_is_named_with_its_package(source_dir, tmp_path):
    shell = shutil.which("sh")
    done = subprocess.run([shell, source_dir / "datasets" / "fetch_kjv.sh", tmp_path], capture_output=True, text=True,
                          env={"PATH": "/nonexistent"}, check=False)
    assert done.returncode == 1
    assert done.stderr == "fetch_kjv.sh: no program 'bible'. install the Debian package bible-kjv\n"
