"""plimsoll-shard killed, gone on with, shared by threads, tasks and ranks: always the same bytes."""

import filecmp
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard


def same_files(a, b):
    names = sorted(str(path.relative_to(a)) for path in a.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(b)) for path in b.rglob("*") if path.is_file())
    assert filecmp.cmpfiles(a, b, names, shallow=False) == (names, [], [])


def texts_of(count, seed):
    rng = random.Random(seed)
    return ["".join(rng.choices("abc \n\u00e9\u65e5\U0001f600\"\\", k=rng.randrange(0, 120))) for _ in range(count)]


def jsonl(texts, bad_every=0):
    rows = []
    for i, text in enumerate(texts):
        bad = bad_every and i % bad_every == bad_every - 1
        rows.append(f"bad {i}\n" if bad else json.dumps({"text": text}, ensure_ascii=False) + "\n")
    return "".join(rows).encode()


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    """Files of every kind, some with bad records."""
    folder = tmp_path_factory.mktemp("corpus") / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(jsonl(texts_of(3000, 1), bad_every=500))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(jsonl(texts_of(1500, 2))[:-9]))
    (folder / "c.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(jsonl(texts_of(1500, 3))))
    pq.write_table(pa.table({"text": texts_of(1500, 4)}), folder / "d.parquet", row_group_size=400)
    (folder / "e.jsonl").write_bytes(jsonl(texts_of(2000, 5), bad_every=300))
    return folder


@pytest.fixture
def corpus(inputs):
    """Arguments to shard them in small blocks and shards."""
    return ["--input", inputs / "*", "--shard-tokens", 150_000, "--validation", "5%", "--on-bad-record", "skip",
            "--block-bytes", "4KiB"]


def but(args, *changes):
    """The arguments with other values."""
    args = list(args)
    for name, value in zip(changes[::2], changes[1::2]):
        if name in args:
            args[args.index(name) + 1] = value
        else:
            args += [name, value]
    return args


@pytest.fixture(scope="session")
def good(tools, inputs):
    """What an undisturbed run writes."""
    args = ["--input", inputs / "*", "--shard-tokens", "150000", "--validation", "5%", "--on-bad-record", "skip"]
    out = inputs.parent / "good"
    subprocess.run([tools / "plimsoll-shard", *args, "--threads", "1", "--out", out], check=True, capture_output=True)
    return out


def test_output_does_not_depend_on_threads_or_blocks(run, tmp_path, corpus, good):
    for threads, block in [(2, "1KiB"), (3, "64KiB"), (8, "4KiB"), (4, "1MiB")]:
        done = run("shard", *but(corpus, "--block-bytes", block), "--threads", threads, "--out", "more", "--force")
        assert done.rc == 0, done.stderr
        same_files(good, tmp_path / "more")


def test_the_first_error_in_the_order_of_the_input_ends_the_run(run, tmp_path):
    rows = [json.dumps({"text": "x" * (i % 90)}) for i in range(4000)]
    rows[1234], rows[1300], rows[3999] = "early", "later", "last"
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    for _ in range(5):
        done = run("shard", "--input", "a.jsonl", "--threads", 8, "--block-bytes", "256B", "--dry-run")
        assert done.rc == 2
        assert done.stderr.splitlines()[-1].startswith("plimsoll-shard: a.jsonl:1235: not valid json (")


@pytest.mark.parametrize("point", ["corpus_journal:2", "corpus_journaled:1", "token_shard_rename:3",
                                   "token_shard_create:4", "corpus_manifest", "corpus_publish"])
def test_killed_at_a_step_it_goes_on(run, tmp_path, corpus, good, point):
    assert run("shard", *corpus, "--out", "out", env={"PLIMSOLL_CRASH_POINT": point}).rc == -signal.SIGKILL
    done = run("shard", *corpus, "--threads", 3, "--out", "out")
    assert done.rc == 0, done.stderr
    assert "resumed    behind " in done.stderr
    same_files(good, tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]


def kill_again_and_again(tools, tmp_path, args, kills, seed):
    """Kills at random moments until the run is done; how often it was killed."""
    rng = random.Random(seed)
    command = [tools / "plimsoll-shard", *map(str, args), "--out", "out"]
    for killed in range(kills):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.02, 0.25))
        process.kill()
        code = process.wait()
        assert code in (0, -signal.SIGKILL)
        # It may be killed after the shards took their place: then they are all there.
        if code == 0 or (tmp_path / "out").exists():
            return killed + (code != 0)
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    return kills


def test_killed_at_random_moments_it_goes_on(tools, tmp_path, inputs, corpus):
    shutil.copytree(inputs, tmp_path / "in")
    (tmp_path / "in" / "a.jsonl").write_bytes(jsonl(texts_of(30_000, 6), bad_every=5000))
    args = but(corpus, "--input", "in/*", "--shard-tokens", 600_000)
    subprocess.run([tools / "plimsoll-shard", *map(str, args), "--out", "good"], cwd=tmp_path, check=True, capture_output=True)
    kills = int(os.environ.get("PLIMSOLL_KILLS", 10))
    total = 0
    for seed in range(100):
        total += kill_again_and_again(tools, tmp_path, args, kills - total, seed)
        same_files(tmp_path / "good", tmp_path / "out")
        shutil.rmtree(tmp_path / "out")
        if total >= kills:
            break
    assert total >= kills


def crashed(run, tmp_path, corpus):
    assert run("shard", *corpus, "--out", "out", env={"PLIMSOLL_CRASH_POINT": "corpus_journaled:2"}).rc == -signal.SIGKILL
    return tmp_path / ".out.partial"


@pytest.mark.parametrize("change, difference", [
    (["--shard-tokens", 50_000], "shard-tokens was 150000, is 50000"),
    (["--validation", "6%"], "validation was 0.05, is 0.06"),
    (["--seed", 9], "seed was 1, is 9"),
    (["--on-bad-record", "replace"], "on-bad-record was skip, is replace"),
    (["--input", "a.jsonl"], "it had 5 input files, not 1"),
])
def test_another_run_does_not_go_on(run, tmp_path, corpus, change, difference):
    crashed(run, tmp_path, corpus)
    (tmp_path / "a.jsonl").write_bytes(jsonl(texts_of(300, 1)))
    changed = but(corpus, *change)
    done = run("shard", *changed, "--out", "out")
    assert (done.rc, done.message) == (2, (
        f"plimsoll-shard: '.out.partial' holds an unfinished run that is not this one ({difference}). repeat its command to "
        "go on, or --restart to begin anew"))
    assert (tmp_path / ".out.partial" / "journal.jsonl").exists()
    done = run("shard", *changed, "--out", "out", "--restart")
    assert done.rc == 0 and "resumed" not in done.stderr, done.stderr
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "out"]


def test_a_changed_input_is_named(run, tmp_path, inputs, corpus):
    shutil.copytree(inputs, tmp_path / "in")
    args = but(corpus, "--input", "in/*")
    crashed(run, tmp_path, args)
    os.utime(tmp_path / "in" / "e.jsonl", (1, 1))
    assert "('in/e.jsonl' was changed since)" in run("shard", *args, "--out", "out").message
    with open(tmp_path / "in" / "e.jsonl", "ab") as file:
        file.write(b"\n")
    size = (tmp_path / "in" / "e.jsonl").stat().st_size
    assert f"('in/e.jsonl' had {size - 1} bytes, has {size})" in run("shard", *args, "--out", "out").message


def test_a_bad_record_late_keeps_what_was_done(run, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(jsonl(texts_of(6000, 1)) + b"bad\n")
    args = ["--input", "a.jsonl", "--shard-tokens", 50_000, "--block-bytes", "4KiB", "--out", "out"]
    assert run("shard", *args).rc == 2
    assert (tmp_path / ".out.partial").exists()
    done = run("shard", *args, "--on-bad-record", "skip")
    assert done.rc == 0 and "resumed    behind " in done.stderr, done.stderr
    assert "bad 1 (skipped" in done.stdout


@pytest.mark.parametrize("harm", ["torn", "no tokens", "changed tokens", "no shard", "garbage"])
def test_what_a_crash_of_the_machine_can_leave_does_no_harm(run, tmp_path, corpus, good, harm):
    partial = crashed(run, tmp_path, corpus)
    journal = partial / "journal.jsonl"
    spill = next(iter(sorted(partial.glob("shard_*.tokens.tmp"))), None)
    if harm == "torn":
        journal.write_bytes(journal.read_bytes()[:-5])
    elif harm == "garbage":
        journal.write_bytes(journal.read_bytes() + bytes(100))
    elif harm == "no shard":
        os.truncate(partial / "shard_00000.h5", 1000)
    elif harm == "no tokens" and spill:
        spill.unlink()
    elif spill:
        data = bytearray(spill.read_bytes())
        data[0] ^= 1
        spill.write_bytes(data)
    done = run("shard", *corpus, "--out", "out")
    assert done.rc == 0, done.stderr
    same_files(good, tmp_path / "out")


def test_tasks_share_a_corpus_and_a_merge_makes_it_one(run, tmp_path, corpus, good):
    for num in (1, 3, 7):
        for index in reversed(range(num)):
            done = run("shard", *corpus, "--shard-index", index, "--num-shards", num, "--out", "parts")
            assert done.rc == 0, done.stderr
        again = run("shard", *corpus, "--shard-index", 0, "--num-shards", num, "--out", "parts")
        assert again.rc == 0 and again.stdout.startswith(f"part 0 of {num} is done already: parts/part_00000_of_{num:05}, ")
        assert again.stdout.count("\n") == 1 and again.stderr == ""
        done = run("shard", "merge", f"parts/part_*_of_{num:05}", "--out", "out", "--force")
        assert done.rc == 0, done.stderr
        same_files(good, tmp_path / "out")


OTHER_INPUTS = {
    "line": ["--input", "*.txt", "--document", "line"], "blank-line": ["--input", "*.txt", "--document", "blank-line"],
    "tokens": ["--input", "*.jsonl", "--format", "tokens"], "prompt-completion": ["--input", "*.jsonl", "--format", "prompt-completion"]}


@pytest.mark.parametrize("kind", OTHER_INPUTS)
def test_kills_threads_and_tasks_change_no_byte_of_other_inputs(run, tmp_path, kind):
    rng = random.Random(kind)
    for name in "ab":
        if kind.endswith("line"):
            (tmp_path / f"{name}.txt").write_text("\n".join(texts_of(2500, name)))
            continue
        rows = []
        for text in texts_of(2500, name):
            ids = list(text.encode())
            rows.append({"input_ids": ids, "labels": [i if rng.random() < 0.5 else -100 for i in ids],
                         "prompt": text[:9], "completion": text[9:]})
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = [*OTHER_INPUTS[kind], "--shard-tokens", 80_000, "--validation", "5%", "--block-bytes", "2KiB"]
    assert run("shard", *args, "--threads", 1, "--out", "good").rc == 0
    assert run("shard", *args, "--out", "out", env={"PLIMSOLL_CRASH_POINT": "corpus_journaled:2"}).rc == -signal.SIGKILL
    done = run("shard", *args, "--threads", 3, "--out", "out")
    assert done.rc == 0 and "resumed    behind " in done.stderr, done.stderr
    same_files(tmp_path / "good", tmp_path / "out")
    for index in range(2):
        assert run("shard", *args, "--shard-index", index, "--num-shards", 2, "--out", "parts").rc == 0
    assert run("shard", "merge", "parts/part_*", "--out", "merged").rc == 0
    same_files(tmp_path / "good", tmp_path / "merged")


def test_a_merge_of_merges_is_the_merge_of_all(run, tmp_path, inputs, corpus):
    args = corpus[2:]
    names = [inputs / name for name in ("a.jsonl", "b.jsonl.gz", "e.jsonl")]
    for path in names:
        assert run("shard", "--input", path, *args, "--out", path.name[0]).rc == 0
    assert run("shard", "--input", *names, *args, "--out", "good").rc == 0
    assert run("shard", "merge", "a", "b", "--out", "ab").rc == 0
    assert run("shard", "merge", "ab", "e", "--out", "abe").rc == 0
    same_files(tmp_path / "good", tmp_path / "abe")


def test_a_merge_of_what_does_not_belong_together_is_refused(run, tmp_path, corpus):
    for index in (0, 2):
        assert run("shard", *corpus, "--shard-index", index, "--num-shards", 3, "--out", "parts").rc == 0
    assert run("shard", "merge", "parts/part_*", "--out", "out").message == (
        "plimsoll-shard: part 1 of 3 is missing. run its task, then merge again")
    one = "parts/part_00000_of_00003"
    assert run("shard", "merge", one, one, "--out", "out").message == (
        f"plimsoll-shard: part 0 of 3 is named twice ('{one}')")
    assert run("shard", *but(corpus, "--shard-tokens", 70_000), "--out", "other").rc == 0
    assert run("shard", "merge", one, "other", "--out", "out").message == (
        f"plimsoll-shard: '{one}' and 'other' were not made alike (shard-tokens 150000 and 70000). merge what one command made")
    done = run("shard", *corpus, "--seed", 5, "--shard-index", 0, "--num-shards", 3, "--out", "parts")
    assert (done.rc, done.message) == (2, (
        f"plimsoll-shard: '{one}' is part 0 of another corpus (other options or inputs). choose another --out, or --force to "
        "replace it"))


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec")
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_write_what_one_process_writes(tools, run, tmp_path, corpus, good, ranks):
    done = subprocess.run(["mpiexec", "-n", str(ranks), tools / "plimsoll-shard", *map(str, corpus), "--out", "out"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("written ") == 1
    same_files(good, tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]


def test_the_array_job_script_ends_in_one_corpus(tools, tmp_path, source_dir, inputs, good):
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_CPUS_PER_TASK": "1"}
    command = ["bash", source_dir / "slurm" / "shard_array.sbatch", inputs / "*", "bytes", tmp_path / "out", "--shard-tokens",
               "150000", "--validation", "5%", "--on-bad-record", "skip"]
    for task in (1, 0, 2, 1):
        done = subprocess.run(command, env={**env, "SLURM_ARRAY_TASK_ID": str(task)}, capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    assert "part 1 of 3 is done already" in done.stdout
    same_files(good, tmp_path / "out")
