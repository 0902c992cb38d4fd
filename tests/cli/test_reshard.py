"""plimsoll-reshard as a user runs it: inspect and verify."""

import json
import os
import resource
import shutil
import subprocess

import pytest

SHARD = "shard_00000_of_00001.h5"


@pytest.fixture
def make(run):
    def call(*args):
        done = run("make-checkpoint", *args)
        assert done.rc == 0, done.stderr
        return done.stdout.split()

    return call


@pytest.fixture
def root(make, tmp_path):
    make("steps", tmp_path / "run/ckpt", 2, 10, 20)
    return tmp_path / "run/ckpt"


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


def data_offset(path, dataset):
    import h5py

    with h5py.File(path, "r") as file:
        return file[dataset].id.get_offset()


def test_help_is_quick_and_names_the_commands(run):
    # Processor time, not the clock: the machine may be busy with something else.
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run("reshard", "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert done.rc == 0
    assert "inspect" in done.stdout and "verify" in done.stdout
    assert min(seconds) < 0.1


def test_links_no_torch_and_no_cuda(tools):
    libraries = subprocess.run(["ldd", tools / "plimsoll-reshard"], capture_output=True, text=True, check=True).stdout
    assert "torch" not in libraries and "libcuda" not in libraries


def test_inspect_shows_header_scalars_and_tree(run, root):
    done = run("reshard", "inspect", root)
    assert done.rc == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{root}/step_00000020   step 20, ") and " in 1 file   format 1.0 by plimsoll " in lines[0]
    assert lines[1] == "model      f00d   fp32   written as tp 1 pp 1 dp 1 zero 0"
    assert lines[2] == "trainer    160 samples, 20,480 tokens   seed 18446744073709551607   order feistel8-v1"
    assert lines[3] == "data       plan c0ffee   tokenizer b0b"
    assert lines[4] == "optimizer  decay: lr 0.0006 betas 0.9 0.95 eps 1e-08 weight-decay 0.1   t 20   4 tensors"
    assert lines[5].startswith(f"file       {SHARD}   ")
    at = lines.index("model   4 tensors, 264 B")
    assert lines[at + 1].split()[:5] == ["embed_tokens.weight", "f32", "[12,", "5]", "240"]
    assert "2 boxes" in lines[at + 1]
    assert lines[at + 3].split()[:4] == ["scale", "f32", "[]", "4"]
    assert lines[at + 4].split()[:5] == ["nothing", "f32", "[0,", "16]", "0"]
    assert "optim/exp_avg   4 tensors, 264 B" in lines and "optim/exp_avg_sq   4 tensors, 264 B" in lines


def test_inspect_json(run, root):
    report = json.loads(run("reshard", "inspect", root, "--step", 10, "--json").stdout)
    assert report["schema_version"] == 1 and report["path"] == f"{root}/step_00000010"
    assert report["trainer"]["step"] == 10 and report["trainer"]["groups"][0]["tensors"][0] == "embed_tokens.weight"
    assert report["files"][0]["bytes"] == (root / "step_00000010" / SHARD).stat().st_size
    assert report["tensors"][0] == {"state": "model", "name": "embed_tokens.weight", "dtype": "f32", "shape": [12, 5],
                                    "bytes": 240, "boxes": 2, "digest": report["tensors"][0]["digest"]}


def test_inspect_finds_step_root_and_run_directory(run, root):
    for where in (root, root.parent, root / "step_00000020"):
        assert json.loads(run("reshard", "inspect", where, "--json").stdout)["trainer"]["step"] == 20


def test_tensor_figures(run, make, tmp_path):
    make("types", tmp_path / "types")
    for name in ("f32", "f64", "bf16", "f16", "i32", "i64"):
        done = run("reshard", "inspect", tmp_path / "types", "--tensor", f"model/{name}")
        assert done.stdout.splitlines() == [
            f"model/{name}   {name} [3, 5]   15 elements, 1 zero, 0 not finite",
            "  min -4   max 10   mean 3   std 4.32049   rms 5.25991",
            "  first -4 -3 -2 -1 0 1 2 3 ...",
        ]
    report = json.loads(run("reshard", "inspect", tmp_path / "types", "--tensor", "bf16", "--json").stdout)
    assert report["tensors"][0]["first"] == [-4, -3, -2, -1, 0, 1, 2, 3]


def test_unknown_tensor_names_the_nearest(run, root):
    done = run("reshard", "inspect", root, "--tensor", "embed_token.weight")
    assert done.rc == 2
    assert done.message == (f"plimsoll-reshard: no tensor 'embed_token.weight' in '{root}/step_00000020'. "
                            "nearest: embed_tokens.weight")


def test_verify_ends_in_ok(run, root):
    for level in ("size", "meta", "full"):
        done = run("reshard", "verify", root, "--level", level)
        assert (done.rc, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0].startswith(f"{root}/step_00000020   1 file, 12 tensors, 15 boxes, ")
        assert lines[-1] == "ok"
    report = json.loads(run("reshard", "verify", root, "--json").stdout)
    assert report["ok"] is True and report["faults"] == [] and report["level"] == "full"


def test_verify_names_file_dataset_and_block(run, root):
    shard = root / "step_00000020" / SHARD
    flip(shard, data_offset(shard, "optim/exp_avg/embed_tokens.weight/1") + 3)
    done = run("reshard", "verify", root)
    assert done.rc == 2 and done.stdout == ""
    assert done.message.startswith(f"plimsoll-reshard: {shard}: optim/exp_avg/embed_tokens.weight/1: block 1 of 1 is damaged (crc ")
    report = run("reshard", "verify", root, "--json")
    assert report.rc == 2 and json.loads(report.stdout)["ok"] is False


def test_verify_prints_one_line_per_fault(run, root):
    shard = root / "step_00000020" / SHARD
    for box in (0, 1):
        flip(shard, data_offset(shard, f"model/embed_tokens.weight/{box}"))
    done = run("reshard", "verify", root)
    assert done.rc == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and all(line.startswith(f"plimsoll-reshard: {shard}: model/embed_tokens.weight/") for line in lines)


@pytest.mark.parametrize("break_it, text", [
    (lambda step: os.truncate(step / SHARD, (step / SHARD).stat().st_size - 1), f"{SHARD}: truncated ("),
    (lambda step: (step / SHARD).unlink(), f"{SHARD}: missing"),
    (lambda step: (step / "COMMIT").unlink(), "COMMIT: missing (not a committed checkpoint)"),
    (lambda step: (step / "manifest.json").write_text("{}"), "manifest.json: does not match COMMIT (edited or damaged)"),
])
def test_broken_step_is_one_line_for_both_commands(run, root, break_it, text):
    step = root / "step_00000020"
    break_it(step)
    for command in (("verify", step, "--level", "size"), ("inspect", step)):
        done = run("reshard", *command)
        assert done.rc == 2
        assert done.message.startswith(f"plimsoll-reshard: {step}/{text}")


def test_damaged_newest_is_skipped_by_inspect_and_a_fault_for_verify(run, root):
    (root / "step_00000020" / SHARD).unlink()
    done = run("reshard", "inspect", root, "--json")
    assert done.rc == 0 and json.loads(done.stdout)["trainer"]["step"] == 10
    assert done.stderr.startswith("warning    ") and "checkpoint skipped" in done.stderr
    done = run("reshard", "verify", root)
    assert done.rc == 2 and f"{root}/step_00000020/{SHARD}: missing" in done.message


def test_wrong_places(run, root, tmp_path):
    missing = tmp_path / "nothing"
    done = run("reshard", "verify", missing)
    assert (done.rc, done.message) == (2, f"plimsoll-reshard: cannot open '{missing}' (no such file or directory)")
    (tmp_path / "file").write_text("x")
    done = run("reshard", "inspect", tmp_path / "file")
    assert (done.rc, done.message) == (2, f"plimsoll-reshard: '{tmp_path}/file' is a file, not the directory of a checkpoint")
    (tmp_path / "empty").mkdir()
    done = run("reshard", "inspect", tmp_path / "empty")
    assert (done.rc, done.message) == (2, f"plimsoll-reshard: no checkpoint in '{tmp_path}/empty' (no committed step)")
    done = run("reshard", "inspect", root, "--step", 15)
    assert (done.rc, done.message) == (2, f"plimsoll-reshard: no step 15 in '{root}'. committed steps: 10 20")
    done = run("reshard", "verify", root, "--level", "deep")
    assert done.rc == 2 and "deep" in done.message and "size" in done.message


def test_unreadable_directory_is_named(run, root):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    os.chmod(root / "step_00000020", 0)
    try:
        assert run("reshard", "verify", root).rc != 0
    finally:
        os.chmod(root / "step_00000020", 0o755)


def test_disk_full_on_a_small_tmpfs_leaves_no_trace(run, make, tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", mount], capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        make("steps", mount / "ckpt", 1, 10)
        before = sorted(os.listdir(mount / "ckpt"))
        (mount / "ballast").write_bytes(bytes(150 * 1024))
        done = run("make-checkpoint", "steps", mount / "ckpt", 1, 20)
        assert done.rc == 1
        assert done.message.startswith(f"make-checkpoint: while saving step 20 to '{mount}/ckpt': cannot save ")
        assert "(free space " in done.message
        assert sorted(os.listdir(mount / "ckpt")) == before
        # Free space that passes the check and is too little all the same, at many sizes of it.
        for size in range(150, 60, -10):
            (mount / "ballast").write_bytes(b"")
            free = shutil.disk_usage(mount).free
            (mount / "ballast").write_bytes(bytes(max(0, free - size * 1024)))
            done = run("make-checkpoint", "steps", mount / "ckpt", 1, 20)
            if done.rc == 0:
                shutil.rmtree(mount / "ckpt/step_00000020")
                continue
            assert "while saving step 20" in done.message
            assert [name for name in sorted(os.listdir(mount / "ckpt")) if name != "latest"] == ["step_00000010"]
            assert run("reshard", "verify", mount / "ckpt/step_00000010").rc == 0
    finally:
        subprocess.run(["umount", mount], check=False)
