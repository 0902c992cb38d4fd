"""plimsoll-train as a user runs it: a run to its end, stops, kills and resumes, validation, refusals."""

import json
import os
import shutil
import signal
import subprocess
import time

import h5py
import pytest
from train_runs import (MODEL, corpus, losses, make_run, metrics, reference, start, status, train,  # noqa: F401
                        wait_for_file, wait_for_step, weights)


def test_loss_terms_are_trained_on_and_the_plain_loss_is_told_beside(run, make_run):
    root = make_run()
    done = train(run, root, "--stop-at-step", 8, "--label-smoothing", "0.1", "--z-loss", "1e-2", "--eval.every", 8)
    assert done.rc == 75, done.stderr
    rows = metrics(root)
    steps = [row for row in rows if "loss" in row]
    # Logits start small: cross entropy, its mean over the vocabulary and lse are all near log 257.
    assert steps[0]["loss"] - steps[0]["cross_entropy"] == pytest.approx(1e-2 * 5.55 ** 2, abs=0.1)
    assert all(row["loss"] > row["cross_entropy"] for row in steps)
    validation = [row["val_loss"] for row in rows if "val_loss" in row]
    assert validation[0] == pytest.approx(steps[-1]["cross_entropy"], abs=0.3)


def test_dropout_goes_on_to_the_bit_and_validation_drops_nothing(run, make_run):
    options = ("--hidden-dropout", "0.2", "--embedding-dropout", "0.1", "--stop-at-step")
    through, stopped = make_run("through"), make_run("stopped")
    assert train(run, through, *options, 10).rc == 75
    assert train(run, stopped, *options, 6).rc == 75
    assert train(run, stopped, *options, 10).rc == 75
    assert losses(stopped) == losses(through)
    assert weights(stopped, 10) == weights(through, 10)
    rows = {row["step"]: row["val_loss"] for row in metrics(through) if "val_loss" in row}
    assert rows[8] < losses(through)[8], "a loss under dropout is above that of the whole model"


def test_attention_dropout_is_refused_with_its_reason(run, make_run):
    done = train(run, make_run(), "--attention-dropout", "0.1")
    assert done.rc == 2
    assert "attention-dropout 0.1 is not available in this version" in done.stderr
    assert "fused attention kernels refuse it or mask in an order of their own" in done.stderr


def test_deterministic_runs_need_threads_and_keep_them(run, make_run):
    root = make_run(replace={"threads = 1\n": ""})
    done = train(run, root, "--deterministic")
    assert done.rc == 2
    assert "run.deterministic needs run.threads" in done.stderr
    assert train(run, root, "--deterministic", "--threads", "1", "--stop-at-step", 6).rc == 75
    done = train(run, root, "--deterministic", "--threads", "2")
    assert done.rc == 2
    assert "run.threads changed from '1' to '2' (run.deterministic: sums would be taken in another order" in done.stderr


def test_a_run_to_its_end(run, reference):
    rows = metrics(reference)
    steps = [row for row in rows if "loss" in row]
    assert [row["step"] for row in steps] == list(range(1, 21))
    first = steps[0]
    for key in ("grad_norm", "lr", "tokens_per_second", "consumed_tokens", "peak_bytes", "valid_tokens", "attempt"):
        assert first[key] > 0, key
    assert set(first["phase_seconds"]) == {"data", "forward", "backward", "pipeline", "reduce", "optimizer"}
    assert first["consumed_tokens"] == 4 * 32
    assert first["lr"] == pytest.approx(3e-3 / 4)
    assert steps[-1]["loss"] < steps[0]["loss"] - 0.5
    evaluations = [row for row in rows if "val_loss" in row]
    assert [row["step"] for row in evaluations] == [8, 16, 20]
    assert evaluations[0]["val_tokens"] == 500
    assert evaluations[0]["bits_per_byte"] == pytest.approx(evaluations[0]["val_loss"] / 0.6931471805599453, rel=0.02)
    assert sorted(p.name for p in (reference / "run" / "ckpt").glob("step_*")) == ["step_00000018", "step_00000020"]
    assert (reference / "run" / "ckpt" / "latest").read_text().strip() == "step_00000020"
    assert status(reference)["state"] == "done" and status(reference)["exit"] == 0 and status(reference)["step"] == 20


def test_a_finished_run_says_so_and_succeeds(run, reference):
    before = (reference / "run" / "ckpt" / "step_00000020" / "COMMIT").read_bytes()
    done = train(run, reference)
    assert done.rc == 0
    assert "the run was finished already (20 steps)" in done.stderr
    assert (reference / "run" / "ckpt" / "step_00000020" / "COMMIT").read_bytes() == before


def state_files(root):
    return {name: (root / "run" / name).read_bytes() for name in ("status.json", "run.ini", "plan.json", "metrics.jsonl")}


@pytest.mark.parametrize("arguments, code", [
    (["--seed", "8"], 2), ([], 0), (["--micro-batch", "1", "--log-every", "3"], 0), (["--steps", "12"], 0),
])
def test_a_start_that_does_nothing_leaves_the_files_of_a_run_as_they_were(run, reference, arguments, code):
    before = state_files(reference)
    done = train(run, reference, *arguments)
    assert done.rc == code, done.stderr
    assert state_files(reference) == before
    assert not (reference / "run" / "run.ini.1").exists()
    report = run("report", reference / "run", "--text")
    assert "finished: 20 of 20 steps" in report.stdout


def test_a_start_of_a_finished_run_repairs_a_status_that_a_kill_left_behind(run, make_run):
    root = make_run()
    assert train(run, root, "--steps", "6").rc == 0
    path = root / "run" / "status.json"
    path.write_text(json.dumps(dict(status(root), state="running", exit=None, step=4)))
    assert train(run, root, "--steps", "6").rc == 0
    repaired = status(root)
    assert (repaired["state"], repaired["exit"], repaired["step"], repaired["attempt"]) == ("done", 0, 6, 1)


def test_the_report_compares_a_measurement_with_the_plan_of_its_own_start(run, make_run):
    root = make_run()
    assert train(run, root, "--micro-batch", "4", "--stop-at-step", "5").rc == 75
    assert train(run, root, "--micro-batch", "1").rc == 0
    assert json.loads((root / "run" / "plan.json").read_text())["attempt"] == 2
    memory = json.loads(run("report", root / "run", "--json").stdout)["memory"]
    peaks = [row["peak_bytes"] for row in metrics(root) if "loss" in row and row["attempt"] == 2]
    assert memory["measured_peak_bytes"] == max(peaks) <= memory["planned_peak_bytes"]
    assert ", attempt 2" in run("report", root / "run", "--text").stdout


def test_json_result_is_the_only_thing_on_stdout(run, make_run):
    root = make_run()
    done = train(run, root, "--steps", "6", "--json")
    assert done.rc == 0
    result = json.loads(done.stdout)
    assert result["schema"] == 1 and result["step"] == 6 and result["exit"] == 0
    assert result["loss"] == losses(root)[6]


def test_stopping_and_going_on_changes_no_bit(run, make_run, reference):
    root = make_run()
    for stop in (7, 13):
        done = train(run, root, "--stop-at-step", str(stop))
        assert done.rc == 75, done.stderr
        assert f"(--stop-at-step {stop}). start again with the same command to continue" in done.stderr
        assert status(root)["state"] == "stopped" and status(root)["step"] == stop
    done = train(run, root)
    assert done.rc == 0
    assert "resume     ckpt/step_00000013: 13 steps" in done.stderr
    assert losses(root) == losses(reference)
    assert weights(root, 20) == weights(reference, 20)
    assert {row["attempt"] for row in metrics(root)} == {1, 2, 3}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR2", "SIGUSR1"])
def test_signals_finish_the_step_save_and_exit_75(tools, run, make_run, reference, name):
    root = make_run()
    arguments = ["--run.signal-usr1"] if name == "SIGUSR1" else []
    process = start(tools, root, "--checkpoint.every", "1000", *arguments)
    wait_for_step(root, 3, process)
    process.send_signal(getattr(signal, name))
    _, stderr = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("the run was over before the signal came")
    assert process.returncode == 75, stderr
    assert f"({name})" in stderr
    stopped = status(root)
    assert stopped["state"] == "stopped" and stopped["reason"] == name and stopped["exit"] == 75
    assert (root / "run" / "ckpt" / f"step_{stopped['step']:08d}" / "COMMIT").exists()
    assert train(run, root).rc == 0
    assert losses(root) == losses(reference)


def test_a_second_signal_ends_at_once_and_status_says_so(tools, run, make_run):
    # A step of some seconds, so that the first signal is still waiting for its end.
    root = make_run(replace={"global-batch = 4": "global-batch = 8000", "every = 8": "every = never", "steps = 20": "steps = 3",
                             "warmup = 4": "warmup = 1"})
    process = start(tools, root)
    wait_for_file(root / "run" / "status.json", process)
    process.send_signal(signal.SIGTERM)
    time.sleep(1.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=5)
    assert process.returncode == 1
    assert ("plimsoll-train: a second SIGINT or SIGTERM (ended at once, nothing was saved). start again with the same command "
            "to continue from the last checkpoint") in stderr
    ended = status(root)
    assert (ended["state"], ended["exit"], ended["reason"], ended["hint"]) == (
        "failed", 1, "a second SIGINT or SIGTERM (ended at once, nothing was saved)",
        "start again with the same command to continue from the last checkpoint")
    assert not (root / "run" / "status.json.end").exists()


def test_a_running_status_names_the_step_and_a_failed_one_has_its_hint(tools, run, make_run):
    root = make_run(replace={"steps = 20": "steps = 100000"})
    process = start(tools, root)
    wait_for_step(root, 11, process)
    process.kill()
    process.communicate()
    assert status(root)["state"] == "running" and status(root)["step"] >= 10
    (root / "run" / "metrics.jsonl").unlink()
    (root / "run" / "ckpt" / "latest").unlink()
    for step in (root / "run" / "ckpt").glob("step_*"):
        shutil.rmtree(step)
    shard = copy_tokens(root)
    with h5py.File(shard) as file:
        offset = file["tokens"].id.get_offset()
    data = bytearray(shard.read_bytes())
    data[offset + 101] ^= 4
    shard.write_bytes(data)
    assert train(run, root).rc == 93
    failed = status(root)
    assert failed["reason"].endswith(")") and "is damaged (crc32c " in failed["reason"]
    assert failed["hint"] == "make the shard again or restore a copy"


def rates(root):
    return {row["step"]: row["lr"] for row in metrics(root) if "lr" in row}


# DeepSpeed 8171, torchtitan 4168: another learning rate after a resume.
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tools, run, make_run, reference):
    root = make_run()
    process = start(tools, root)
    wait_for_step(root, 9, process)
    process.kill()
    process.communicate()
    assert status(root)["state"] == "running"
    done = train(run, root)
    assert done.rc == 0, done.stderr
    assert losses(root) == losses(reference)
    assert rates(root) == rates(reference) and len(set(rates(root).values())) > 4
    assert weights(root, 20) == weights(reference, 20)


def test_validation_changes_no_bit_of_training(run, make_run, reference):
    root = make_run(replace={"every = 8": "every = never"})
    assert train(run, root).rc == 0
    assert losses(root) == losses(reference)
    assert weights(root, 20) == weights(reference, 20)


def test_accumulation_gives_the_same_loss(run, make_run, reference):
    root = make_run()
    assert train(run, root, "--micro-batch", "4").rc == 0
    for step, loss in losses(reference).items():
        assert losses(root)[step] == pytest.approx(loss, rel=1e-5)  # decision 22, fp32


def test_fp64_and_gpt2_run_too(run, make_run):
    root = make_run(replace={"steps = 20": "steps = 6\nprecision = fp64"})
    gpt2 = {"model_type": "gpt2", "vocab_size": 257, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
            "resid_pdrop": 0.1}
    (root / "model.json").write_text(json.dumps(gpt2))
    done = train(run, root)
    assert done.rc == 0, done.stderr
    assert len(losses(root)) == 6
    assert "note       " in done.stderr  # dropout is not applied, and that is said


def test_a_dry_run_writes_nothing(run, make_run):
    root = make_run()
    done = train(run, root, "--dry-run")
    assert done.rc == 0
    assert "dry run    ok: nothing was started or written" in done.stderr
    assert not (root / "run").exists()


def test_a_dry_run_finds_a_run_directory_that_cannot_be_written(run, make_run):
    root = make_run()
    (root / "file").write_text("no folder")
    for more in (["--dry-run"], []):
        done = train(run, root, "--run.dir", str(root / "file/run"), *more)
        assert done.rc == 1
        assert done.stderr.endswith(f"plimsoll-train: cannot write to '{root}/file/run' ('{root}/file': not a directory). "
                                    "choose another run.dir\n"), done.stderr
    assert "dry run    ok" not in done.stderr


def test_diverging_ends_with_93(run, make_run):
    root = make_run(replace={"lr = 3e-3": "lr = 1e30", "warmup = 4": "warmup = 1"})
    done = train(run, root)
    assert done.rc == 93
    assert "plimsoll-train: " in done.stderr and " is nan at step " in done.stderr
    assert status(root)["state"] == "failed" and status(root)["exit"] == 93


def test_free_changes_are_printed(run, make_run):
    root = make_run()
    assert train(run, root, "--stop-at-step", "6").rc == 75
    done = train(run, root, "--lr", "1e-3", "--stop-at-step", "8")
    assert done.rc == 75
    assert "changed    train.lr: 0.003 -> 0.001" in done.stderr
    assert [row["lr"] for row in metrics(root) if row.get("step") == 8 and "lr" in row] == [1e-3]
    assert (root / "run" / "run.ini.1").exists()


@pytest.mark.parametrize("option, value, key", [
    ("--seed", "4", "run.seed"), ("--global-batch", "8", "layout.global-batch"), ("--seq-len", "16", "data.seq-len"),
])
def test_guarded_changes_are_refused_unless_allowed(run, make_run, option, value, key):
    root = make_run()
    assert train(run, root, "--stop-at-step", "6").rc == 75
    done = train(run, root, option, value)
    assert done.rc == 2
    assert f"plimsoll-train: {key} changed from " in done.stderr
    assert f"--allow-change {key}" in done.stderr
    done = train(run, root, option, value, "--allow-change", key, "--stop-at-step", "7")
    assert done.rc == 75, done.stderr


def test_a_checkpoint_of_another_model_is_refused(run, make_run):
    root = make_run()
    assert train(run, root, "--stop-at-step", "6").rc == 75
    (root / "model.json").write_text(json.dumps(dict(MODEL, intermediate_size=96)))
    done = train(run, root)
    assert done.rc == 2
    assert "is a checkpoint of another model (its config.json differs from" in done.stderr


def test_moved_data_of_the_same_content_is_fine_and_other_data_is_not(run, make_run, tmp_path):
    root = make_run()
    assert train(run, root, "--stop-at-step", "6").rc == 75
    moved = tmp_path / "moved"
    shutil.copytree(root / "tokens", moved)
    shards = str(moved / "*.h5")
    assert train(run, root, "--data.words.shards", shards, "--stop-at-step", "7").rc == 75
    done = train(run, root, "--data.words.shards", str(moved / "validation" / "*.h5"))
    assert done.rc == 2
    assert "was trained on other data" in done.stderr


def test_starting_from_another_runs_checkpoint(run, make_run, reference):
    first, second = make_run("first"), make_run("second")
    assert train(run, first, "--stop-at-step", "9").rc == 75
    done = train(run, second, "--resume", str(first / "run" / "ckpt"))
    assert done.rc == 0, done.stderr
    assert {s: l for s, l in losses(reference).items() if s > 9} == losses(second)


def test_resume_never_and_a_directory_without_steps(run, make_run, tmp_path):
    root = make_run()
    assert train(run, root, "--stop-at-step", "2").rc == 75
    done = train(run, root, "--resume", "never")
    assert done.rc == 2 and "holds committed steps and resume is never" in done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    fresh = make_run("b")
    done = train(run, fresh, "--resume", str(empty))
    assert done.rc == 2 and f"checkpoint.resume '{empty}' holds no committed step" in done.stderr
    done = train(run, fresh, "--resume", "nopenope", cwd=tmp_path)
    assert done.rc == 2
    assert (f"plimsoll-train: cannot open checkpoint.resume '{tmp_path}/nopenope' (no such file or directory). give a step, a "
            "directory with steps, a run directory, auto or never") in done.stderr
    assert not (fresh / "run").exists(), "a refused start leaves no run directory behind"


def test_two_runs_never_write_one_directory(tools, run, make_run):
    root = make_run(replace={"steps = 20": "steps = 100000"})
    process = start(tools, root)
    try:
        wait_for_step(root, 1, process)
        for more in ([], ["--dry-run"]):
            done = train(run, root, *more)
            assert done.rc == 2
            assert str(process.pid) in done.stderr and "another run" in done.stderr
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("arguments, message", [
    (["--micro-batch", "3"], "global batch 4 is not a multiple of dp 1 x micro-batch 3 = 3"),
    (["--seq-len", "65"], "data.seq-len 65 is longer than the model's 64 positions"),
    (["--data.words.shards", "/nonexistent/*.h5"], "/nonexistent/*.h5"),
    (["--tokens", "100"], "the run has 2 lengths (tokens 100, steps 20). keep one"),
    (["--optimizer", "muon"], "optimizer muon is not available in this version"),
    (["--cp", "2"], "cp 2 is not available in this version"),
    (["--precision", "fp16"], "precision fp16 is not available in this version"),
    (["--allow-change", "foo"], "--allow-change foo: not a key that a resume guards (others may change without it). guarded: model, "),
    (["--allow-change", "train.lr"], "--allow-change train.lr: not a key that a resume guards"),
    (["--stop-at-step", "21"], "--stop-at-step 21 is after the end of the run (20 steps). give a step before it, or leave it out"),
    (["--train-iters", "5"], "--steps"),
    (["--bf16"], "unknown option '--bf16' (another toolkit's name). use --precision bf16"),
    (["--optimizer.lr", "1e-3"], "settings for all tensors stand in [train]: use --lr"),
    (["--exit-duration-in-mins", "30"], "use --stop-at-step, or let the batch system send USR2 ahead of its limit"),
    (["--num-workers", "2"], "use nothing: a rank reads its own tokens"),
    (["--tensor-model-parallel-size", "2"], "--tp"),
])
def test_refusals_before_anything_starts(run, make_run, arguments, message):
    root = make_run()
    done = train(run, root, *arguments)
    assert done.rc == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("plimsoll-train: ")]
    assert len(lines) == 1 and message in lines[0], done.stderr
    assert not (root / "run").exists()


def test_all_violations_of_a_layout_are_named_at_once_as_the_estimator_names_them(run, make_run):
    root = make_run()
    wrong = ["--tp", "3", "--pp", "3", "--micro-batch", "3", "--seq-len", "65"]
    refused = train(run, root, *wrong, "--dry-run")
    estimate = run("estimate", "--config", root / "run.ini", *wrong)
    assert (refused.rc, estimate.rc) == (2, 2)
    assert refused.message.removeprefix("plimsoll-train: ") == estimate.message.removeprefix("plimsoll-estimate: ")
    for part in ("4 attention heads cannot be split over tp 3", "2 key-value heads cannot be shared by tp 3",
                 "2 layers cannot fill pp 3 stages", "global batch 4 is not a multiple of dp 1 x micro-batch 3 = 3",
                 "data.seq-len 65 is longer than the model's 64 positions"):
        assert part in refused.message


def test_a_vocabulary_smaller_than_the_data_is_refused(run, make_run):
    root = make_run()
    (root / "model.json").write_text(json.dumps(dict(MODEL, vocab_size=100)))
    done = train(run, root)
    assert done.rc == 2
    assert "data.words has token ids up to 256, the model's vocabulary is 100" in done.stderr


def copy_tokens(root):
    tokens = root / "tokens"
    target = tokens.resolve()
    tokens.unlink()
    shutil.copytree(target, tokens)
    return sorted(tokens.glob("*.h5"))[0]


def test_a_truncated_shard_is_named(run, make_run):
    root = make_run()
    shard = copy_tokens(root)
    os.truncate(shard, shard.stat().st_size - 1)
    done = train(run, root)
    assert done.rc == 93
    assert shard.name in done.stderr and "truncated" in done.stderr


def test_a_flipped_bit_in_the_tokens_is_found_while_training(run, make_run):
    root = make_run()
    shard = copy_tokens(root)
    with h5py.File(shard) as file:
        offset = file["tokens"].id.get_offset()
    with open(shard, "r+b") as file:
        file.seek(offset + 101)
        byte = file.read(1)[0]
        file.seek(offset + 101)
        file.write(bytes([byte ^ 4]))
    done = train(run, root)
    assert done.rc == 93
    assert shard.name in done.stderr and "crc" in done.stderr.lower()


def test_a_damaged_newest_step_falls_back_to_the_one_before(run, make_run, reference):
    root = make_run()
    assert train(run, root, "--stop-at-step", "14").rc == 75
    newest = root / "run" / "ckpt" / "step_00000014"
    shard = sorted(newest.glob("shard_*.h5"))[0]
    os.truncate(shard, shard.stat().st_size - 8)
    done = train(run, root)
    assert done.rc == 0, done.stderr
    assert "warning" in done.stderr and "step_00000014" in done.stderr
    assert "resume     ckpt/step_00000012" in done.stderr
    assert losses(root) == losses(reference)


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 1 MiB: about two checkpoints of the small model do not fit."""
    mount = tmp_path / "disk"
    mount.mkdir()
    size = "size=900k"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(mount)], capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs is not permitted here")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.parametrize("policy, code", [("stop", 93), ("warn", 93)])
def test_a_full_disk_leaves_no_half_checkpoint(run, make_run, small_disk, policy, code):
    root = make_run(replace={"dir = ": f"dir = {small_disk}/run\n#"})
    done = train(run, root, "--on-save-failure", policy)
    # The last save of a run must succeed: a run without its result is no success under either policy.
    assert done.rc == code, done.stderr
    assert "while saving step" in done.stderr
    went_on = "training goes on (on-save-failure warn)" in done.stderr
    assert went_on == (policy == "warn")
    checkpoints = small_disk / "run" / "ckpt"
    for step in checkpoints.glob("step_*"):
        assert run("reshard", "verify", step, "--level", "full").rc == 0
    assert not list(checkpoints.glob(".tmp_*"))
