"""plimsoll-reshard IN OUT as a user runs it, its results read by h5py as docs/checkpoint_format.md says, and nothing else."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from conftest import tool_environment

LAYOUTS = {
    "one": (1, 1, 1, 0),
    "tp2": (2, 1, 1, 0),
    "tp4": (4, 1, 1, 0),  # two KV heads: each is held by two ranks
    "pp2": (1, 2, 1, 0),
    "dp3": (1, 1, 3, 1),
    "zero3": (1, 1, 3, 3),
    "all": (2, 2, 3, 1),
}


@pytest.fixture
def make(run, tmp_path):
    """make(model, layout, mixed=False) -> the directory of steps."""

    def call(model, layout, *more):
        root = tmp_path / f"in_{model}_{'_'.join(map(str, layout))}"
        done = run("make-checkpoint", "layout", root, 6, model, *layout, *more, timeout=300)
        assert done.rc == 0, done.stderr
        return root

    return call


def options(layout):
    tp, pp, dp, zero = layout
    return ["--tp", tp, "--pp", pp, "--dp", dp, "--zero", zero]


# A reader from the document alone.

STATES = ["model", "optim/master", "optim/exp_avg", "optim/exp_avg_sq"]
TYPES = {"f32": "<u4", "f64": "<u8", "bf16": "<u2"}  # bits, so that equal means equal
MASK = 2**64 - 1


def read_step(step):
    """All canonical tensors as arrays of bits; checks that each element is stored once."""
    manifest = json.loads((step / "manifest.json").read_text())
    tensors, seen = {}, {}
    for row in manifest["tensors"]:
        tensors[row["state"], row["name"]] = np.zeros(row["shape"], TYPES[row["dtype"]])
        seen[row["state"], row["name"]] = np.zeros(row["shape"], np.int32)
    for number, entry in enumerate(manifest["files"]):
        assert entry["name"] == f"shard_{number:05d}_of_{len(manifest['files']):05d}.h5"
        with h5py.File(step / entry["name"]) as file:
            assert file.attrs["uuid"].decode() == manifest["uuid"] and file.attrs["complete"] == 1
            assert list(file.attrs["shard"]) == [number, len(manifest["files"])]
            assert ("trainer" in file) == (number == 0)
            names = [name.decode() for name in file["names"]]
            index = file["index"][...]
        raw = np.memmap(step / entry["name"], np.uint8, "r")
        assert len(index) == entry["boxes"]
        for row in index:
            key = (STATES[row["state"]], names[row["fqn_id"]])
            ndim = row["ndim"]
            shape = row["shape"][:ndim].astype(int)
            place = tuple(slice(int(o), int(o + s)) for o, s in zip(row["offset"][:ndim], shape))
            begin, end = int(row["file_offset"]), int(row["file_offset"] + row["nbytes"])
            tensors[key][place] = raw[begin:end].view(tensors[key].dtype).reshape(shape)
            seen[key][place] += 1
    for key, count in seen.items():
        assert (count == 1).all(), key
    return manifest, tensors


def mix64(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hash_of(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    with np.errstate(over="ignore"):
        return int(mix64(np.array([value], np.uint64))[0])


def content(state, name, bits, step=6):
    """What make-checkpoint writes, and the digest of it."""
    salt = hash_of(f"{state}/{name}")
    index = np.arange(bits.size, dtype=np.uint64)
    with np.errstate(over="ignore"):
        values = mix64(index ^ np.uint64((salt + step) & MASK)) & np.uint64(0x3333333333333333)
        low = values.astype(bits.dtype)
        total = int(mix64(mix64(index ^ np.uint64(salt)) ^ low.astype(np.uint64)).sum(dtype=np.uint64))
    return low.reshape(bits.shape), f"{total:016x}"


def check_step(step):
    manifest, tensors = read_step(step)
    for row in manifest["tensors"]:
        bits = tensors[row["state"], row["name"]]
        wanted, digest = content(row["state"], row["name"], bits)
        np.testing.assert_array_equal(bits, wanted, f"{row['state']}/{row['name']}")
        assert row["digest"] == digest
    return manifest


def digests(manifest):
    return sorted((row["state"], row["name"], row["digest"]) for row in manifest["tensors"])


@pytest.mark.parametrize("model", ["llama", "tied", "gpt2"])
def test_there_and_back_over_all_layouts_read_by_h5py(run, make, tmp_path, model):
    source = make(model, LAYOUTS["tp2"])
    first = check_step(source / "step_00000006")
    for name, layout in [*LAYOUTS.items(), ("back", LAYOUTS["tp2"])]:
        out = tmp_path / name
        done = run("reshard", source, out, *options(layout))
        assert (done.rc, done.stderr) == (0, "")
        manifest = check_step(out / "step_00000006")
        assert digests(manifest) == digests(first)
        for key in ("step", "precision", "aliases", "model", "run_ini"):
            assert manifest[key] == first[key]
        verdict = run("reshard", "verify", out)
        assert verdict.rc == 0 and verdict.stdout.endswith("ok\n")
        source = out


def test_bf16_with_master_weights(run, make, tmp_path):
    source = make("tied", LAYOUTS["dp3"], "mixed")
    assert run("reshard", source, tmp_path / "out", *options(LAYOUTS["all"])).rc == 0
    manifest = check_step(tmp_path / "out/step_00000006")
    assert {(row["state"], row["dtype"]) for row in manifest["tensors"]} == {
        ("model", "bf16"), ("optim/master", "f32"), ("optim/exp_avg", "f32"), ("optim/exp_avg_sq", "f32")}


def test_tensors_of_one_element(run, make, tmp_path):
    source = make("tiniest", LAYOUTS["one"])
    assert run("reshard", source, tmp_path / "out", "--pp", 2, "--dp", 3, "--zero", 1).rc == 0
    check_step(tmp_path / "out/step_00000006")


def test_report_lines(run, make, tmp_path):
    source = make("llama", LAYOUTS["tp2"])
    done = run("reshard", source, tmp_path / "out", *options(LAYOUTS["all"]))
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["source", "target", "copies", "memory", "moved", "verify"]
    assert lines[0].startswith("source     step_00000006   tp 2   30 tensors x 3 states   25.1 kB in 2 files")
    assert lines[1].startswith("target     dp 3 tp 2 pp 2 zero 1   12 files, ") and "(balance 1." in lines[1]
    assert "   read 25.1 kB (amplification 1.00)   write 25.1 kB" in lines[2]
    assert " MiB per rank of 512 MiB allowed      time at 1.00 GB/s: 0:00" in lines[3]
    assert lines[5] == ("verify     coverage ok: every element once   digest ok: 90 of 90 equal   committed "
                        f"{tmp_path}/out/step_00000006")
    assert (tmp_path / "out/latest").read_text() == "step_00000006\n"


def test_a_run_directory_is_no_out(run, make, tmp_path):
    source = make("llama", LAYOUTS["tp2"])
    (tmp_path / "run/ckpt").mkdir(parents=True)
    for more in ([], ["--dry-run"]):
        done = run("reshard", source, tmp_path / "run", "--tp", 1, *more)
        assert done.rc == 2
        assert done.message == (f"plimsoll-reshard: '{tmp_path}/run' is a run directory (its steps are in ckpt/, and one beside them "
                                "would be read in their place). give another OUT, and start from it with --resume OUT")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["ckpt"]


def test_a_dry_run_finds_an_out_that_cannot_be_written(run, make, tmp_path):
    source = make("llama", LAYOUTS["tp2"])
    (tmp_path / "file").write_text("no folder")
    for more in (["--dry-run"], []):
        done = run("reshard", source, tmp_path / "file/out", "--pp", 2, *more)
        assert done.rc == 1
        assert done.message == (f"plimsoll-reshard: cannot write to '{tmp_path}/file/out' ('{tmp_path}/file': not a directory). "
                                "choose another OUT")


def test_dry_run_writes_nothing(run, make, tmp_path):
    source = make("llama", LAYOUTS["tp2"])
    done = run("reshard", source, tmp_path / "deep/out", "--pp", 2, "--dry-run")
    assert (done.rc, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["source", "target", "copies", "memory"]
    assert not (tmp_path / "deep").exists()


def test_json(run, make, tmp_path):
    source = make("llama", LAYOUTS["tp2"])
    plan = json.loads(run("reshard", source, tmp_path / "out", "--pp", 2, "--dry-run", "--json").stdout)
    assert plan["schema_version"] == 1 and plan["dry_run"] is True and "committed" not in plan
    assert plan["source"] == {"path": f"{source}/step_00000006", "layout": "tp 2", "files": 2}
    assert plan["target"]["layout"] == "pp 2" and plan["target"]["files"] == 2
    done = json.loads(run("reshard", source, tmp_path / "out", "--pp", 2, "--json").stdout)
    assert done["committed"] == f"{tmp_path}/out/step_00000006" and done["digests_equal"] == 90
    assert done["read_bytes"] == plan["read_bytes"] == done["write_bytes"]


def test_the_target_may_stand_in_a_run_file(run, make, tmp_path):
    source = make("llama", LAYOUTS["one"])
    (tmp_path / "eight.ini").write_text("[layout]\ntp = 2\npp = 2\ndp = 2\nzero = 1\nglobal-batch = 8\n[data]\nshards = nowhere/*.h5\n")
    assert run("reshard", source, tmp_path / "out", "--config", tmp_path / "eight.ini").rc == 0
    assert check_step(tmp_path / "out/step_00000006")["layout"] == "dp 2 tp 2 pp 2 zero 1"


def test_step_and_run_directory(run, make, tmp_path):
    source = make("llama", LAYOUTS["one"])
    done = run("make-checkpoint", "layout", source, 8, "llama", 1, 1, 1, 0)
    assert done.rc == 0
    (tmp_path / "run").mkdir()
    source.rename(tmp_path / "run/ckpt")
    assert run("reshard", tmp_path / "run", tmp_path / "a", "--tp", 2, "--step", 6).rc == 0
    assert run("reshard", tmp_path / "run", tmp_path / "a", "--tp", 2).rc == 0
    assert sorted(os.listdir(tmp_path / "a")) == ["latest", "step_00000006", "step_00000008"]
    done = run("reshard", tmp_path / "run", tmp_path / "a", "--step", 7)
    assert (done.rc, done.message) == (2, f"plimsoll-reshard: no step 7 in '{tmp_path}/run'. committed steps: 6 8")


def test_refusals_are_one_line_and_exit_2(run, make, tmp_path):
    source = make("llama", LAYOUTS["tp2"])
    (tmp_path / "empty").mkdir()

    def refusal(*args):
        done = run("reshard", *args)
        assert (done.rc, done.stdout) == (2, "")
        assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []
        return done.message.removeprefix("plimsoll-reshard: ")

    out = tmp_path / "out"
    assert refusal(source, out, "--tp", 3).startswith("4 attention heads cannot be split over tp 3 (heads are not cut). allowed tp: 1 2 4")
    assert refusal(source, out, "--pp", 4) == "3 layers cannot fill pp 4 stages (each stage needs a layer). allowed pp: 1 to 3"
    assert refusal(source, out, "--zero", 1, "--dp", 3, "--layout.dp-shard", 2) == \
        "dp 3 cannot be cut into groups of dp-shard 2 (it does not divide). allowed dp-shard: 1 3"
    assert refusal(tmp_path / "empty", out) == f"no checkpoint in '{tmp_path}/empty' (no committed step)"
    assert refusal(source, out, "--memory-limit", "100MiB").startswith(
        "memory limit 100 MiB is too small (this checkpoint needs at least 128 MiB per rank). try --memory-limit ")
    assert refusal(source, source, "--pp", 2) == \
        f"step 6 is in '{source}' already ('{source}/step_00000006' exists). choose another directory"
    assert refusal(source) == "OUT is missing (directory of the new step; made when missing). see --help"
    assert "has no unit" in refusal(source, out, "--memory-limit", "512")


def test_too_little_disk_is_said_before_anything_is_written(run, make, tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", mount], capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        source = make("llama", LAYOUTS["tp2"])
        for more in ([], ["--dry-run"]):
            done = run("reshard", source, mount / "out", "--pp", 2, *more)
            assert done.rc == 2
            assert done.message.startswith("plimsoll-reshard: cannot write ") and f"to '{mount}/out' (free space " in done.message
            assert os.listdir(mount) == []
    finally:
        subprocess.run(["umount", mount], check=False)


def damage(step):
    """Flips a bit in the parameters' largest box of the second file; returns the name of the tensor."""
    path = step / "shard_00001_of_00002.h5"
    with h5py.File(path) as file:
        names = [name.decode() for name in file["names"]]
        row = max((row for row in file["index"][...] if row["state"] == 0), key=lambda row: row["nbytes"])
    with open(path, "r+b") as raw:
        raw.seek(int(row["file_offset"]) + 5)
        byte = raw.read(1)[0]
        raw.seek(int(row["file_offset"]) + 5)
        raw.write(bytes([byte ^ 4]))
    return path, names[row["fqn_id"]]


def test_a_damaged_source_is_exit_93_and_nothing_is_committed(run, make, tmp_path):
    source = make("llama", LAYOUTS["tp2"])
    path, name = damage(source / "step_00000006")
    done = run("reshard", source, tmp_path / "out", "--pp", 2)
    assert done.rc == 93
    assert done.message.startswith(f"plimsoll-reshard: {path}: model/{name}/0: block 1 of 1 is damaged (crc ")
    assert os.listdir(tmp_path / "out") == []


def test_a_digest_that_differs_is_exit_93_and_names_the_tensor(run, make, tmp_path):
    import hashlib

    step = make("llama", LAYOUTS["tp2"]) / "step_00000006"
    manifest = json.loads((step / "manifest.json").read_text())
    manifest["tensors"][40]["digest"] = "0123456789abcdef"
    text = json.dumps(manifest)
    (step / "manifest.json").write_text(text)
    (step / "COMMIT").write_text(f"{hashlib.sha256(text.encode()).hexdigest()}  manifest.json\n")
    done = run("reshard", step, tmp_path / "out", "--pp", 2)
    tensor = manifest["tensors"][40]
    assert done.rc == 93
    assert done.message.startswith(f"plimsoll-reshard: digest of '{tensor['state']}/{tensor['name']}' is ")
    assert "the source's is 0123456789abcdef (the source is damaged, nothing was committed)" in done.message
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize("point", ["checkpoint.create:2", "checkpoint.block:7", "checkpoint.manifest", "checkpoint.publish"])
def test_a_killed_rewrite_leaves_no_step_and_the_next_one_works(run, make, tmp_path, point):
    source = make("llama", LAYOUTS["tp2"])
    done = run("reshard", source, tmp_path / "out", "--pp", 2, env={"PLIMSOLL_CRASH_POINT": point})
    assert done.rc == -9
    assert [name for name in os.listdir(tmp_path / "out") if not name.startswith(".tmp_")] == []
    assert run("reshard", source, tmp_path / "out", "--pp", 2).rc == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["latest", "step_00000006"]
    check_step(tmp_path / "out/step_00000006")


@pytest.mark.parametrize("schedule, of_first", [
    ([], "01"), (["--pp-schedule", "interleaved"], "02"), (["--pp-schedule", "interleaved", "--virtual-stages", 2], "02"),
    (["--pp-schedule", "zbv"], "03"),
])
def test_virtual_stages_decide_which_rank_holds_what(run, tmp_path, schedule, of_first):
    config = {"model_type": "llama", "vocab_size": 37, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 4,
              "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert run("make-checkpoint", "layout", tmp_path / "in", 6, tmp_path / "config.json", 2, 1, 1, 0).rc == 0
    done = run("reshard", tmp_path / "in", tmp_path / "out", "--pp", 2, *schedule)
    assert done.rc == 0, done.stderr
    with h5py.File(tmp_path / "out/step_00000006/shard_00000_of_00002.h5") as file:
        all_names = [name.decode() for name in file["names"]]
        names = {all_names[row["fqn_id"]] for row in file["index"][...]}
    assert "".join(sorted({name.split(".")[1] for name in names if name.startswith("layers.")})) == of_first
    assert ("head.weight" in names) == (of_first == "03")
    assert run("reshard", tmp_path / "out", tmp_path / "back", "--tp", 2).rc == 0
    expected = read_step(tmp_path / "in/step_00000006")[1]
    for root in ("out", "back"):
        tensors = read_step(tmp_path / root / "step_00000006")[1]
        assert tensors.keys() == expected.keys()
        for key, values in expected.items():
            assert (tensors[key] == values).all(), key


def test_disk_full_on_the_way(run, make, tmp_path):
    source = make("llama", LAYOUTS["tp2"])
    done = run("reshard", source, tmp_path / "out", "--pp", 2, env={"PLIMSOLL_FAULT_ENOSPC_AFTER": 9000})
    assert done.rc == 1 and "(no space left on device)" in done.message
    assert os.listdir(tmp_path / "out") == []


def mpi_run(tools, cwd, num_ranks, *args, env=None):
    command = ["mpiexec", "-n", str(num_ranks), str(tools / "plimsoll-reshard"), *map(str, args)]
    return subprocess.run(command, cwd=cwd, env=tool_environment(env), capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def mpi(tools, tmp_path):
    libraries = subprocess.run(["ldd", tools / "plimsoll-reshard"], capture_output=True, text=True, check=True).stdout
    if "libmpi" not in libraries or not shutil.which("mpiexec"):
        pytest.skip("this build has no MPI")
    return lambda *args, **more: mpi_run(tools, tmp_path, *args, **more)


def test_several_processes_write_the_bytes_of_one(run, make, mpi, tmp_path):
    source = make("llama", LAYOUTS["tp2"])
    assert run("reshard", source, tmp_path / "one", *options(LAYOUTS["all"])).rc == 0
    time.sleep(1.1)  # no time of day lies in a file
    done = mpi(3, source, tmp_path / "three", *options(LAYOUTS["all"]))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 6, "rank 0 alone prints"
    names = sorted(os.listdir(tmp_path / "one/step_00000006"))
    assert names == sorted(os.listdir(tmp_path / "three/step_00000006")) and len(names) == 14
    for name in names:
        assert (tmp_path / "one/step_00000006" / name).read_bytes() == (tmp_path / "three/step_00000006" / name).read_bytes()


def test_several_processes_fail_with_one_line(make, mpi, tmp_path):
    source = make("llama", LAYOUTS["tp2"])
    done = mpi(2, source, tmp_path / "out", "--tp", 3)
    assert done.returncode == 2
    assert len([line for line in done.stderr.splitlines() if "4 attention heads cannot be split over tp 3" in line]) == 1
    path, _ = damage(source / "step_00000006")
    done = mpi(2, source, tmp_path / "out", "--pp", 2)
    assert done.returncode == 93
    assert len([line for line in done.stderr.splitlines() if f"{path}: model/" in line and "is damaged" in line]) == 1
    assert os.listdir(tmp_path / "out") == []


@pytest.fixture(scope="module")
def large(tools, source_dir, tmp_path_factory):
    """1.49 GB: more than ten times the memory that the tests allow."""
    root = tmp_path_factory.mktemp("large")
    command = [tools / "plimsoll-make-checkpoint", "layout", root / "in", "6", source_dir / "jobs/models/gpt2.json", "2", "1", "1", "0"]
    subprocess.run(command, env=tool_environment(), check=True, capture_output=True, timeout=600)
    yield root / "in"
    shutil.rmtree(root)


# The peak of a child counts what its parent had when it was started: a small parent measures, not pytest.
MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], check=False).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def test_memory_stays_below_the_limit(tools, large, tmp_path):
    limit = 136
    command = [sys.executable, "-S", "-c", MEASURE, tools / "plimsoll-reshard", large, tmp_path / "out", "--pp", "2",
               "--memory-limit", f"{limit}MiB", "--json"]
    done = subprocess.run(command, env=tool_environment(), capture_output=True, text=True, timeout=300, check=False)
    shutil.rmtree(tmp_path / "out")
    assert done.returncode == 0, done.stderr
    text, peak = done.stdout.rstrip("\n").rsplit("\n", 1)
    report = json.loads(text)
    assert report["write_bytes"] > 10 * limit * 2**20
    assert report["amplification"] == 1
    assert report["memory_bytes"] <= limit * 2**20
    assert int(peak) <= limit * 1024, f"peak {int(peak) / 1024:.0f} MiB"


def test_a_stop_leaves_nothing_and_says_so(tools, large, tmp_path):
    command = [str(tools / "plimsoll-reshard"), str(large), str(tmp_path / "out"), "--pp", "2"]
    with subprocess.Popen(command, env=tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "out").exists() or not os.listdir(tmp_path / "out"):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 75
    assert errors == "plimsoll-reshard: stopped by SIGTERM (nothing was written). run the same command again\n"
    assert os.listdir(tmp_path / "out") == []
