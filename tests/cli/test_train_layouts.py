"""plimsoll-train over MPI ranks: the same loss in every layout, any layout from one checkpoint, ranks that fail."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
from conftest import tool_environment
from train_runs import MODEL, corpus, losses, make_run, metrics, mpi, reference, status, train, wait_for_step, weights  # noqa: F401

# fp32, 20 steps: another order of summation (decision 22 of the architecture).
LOSS_GATE = 1e-5


def close(got, expected):
    assert got.keys() == expected.keys()
    for step, loss in expected.items():
        assert got[step] == pytest.approx(loss, rel=LOSS_GATE), f"step {step}"


def val_losses(root):
    return {row["step"]: row["val_loss"] for row in metrics(root) if "val_loss" in row}


@pytest.mark.parametrize("ranks, layout", [
    (2, ["--tp", "2"]), (2, ["--pp", "2"]), (2, ["--zero", "1"]), (2, ["--zero", "2"]), (4, ["--tp", "2", "--pp", "2"]),
    (2, ["--tp", "2", "--sequence-parallel"]), (4, ["--tp", "4", "--layout.sequence-parallel"]),
    (4, ["--tp", "2", "--dp", "2", "--zero", "3", "--layout.resident", "0B", "--micro-batch", "1"]),
    (4, ["--zero", "3", "--layout.resident", "0B", "--layout.dp-shard", "2", "--micro-batch", "1"]),
])
def test_a_layout_has_the_losses_of_reference(tools, make_run, reference, ranks, layout):
    root = make_run()
    done = mpi(tools, ranks, "train", "--config", root / "run.ini", *layout)
    assert done.rc == 0, done.stderr
    assert f"{ranks} ranks" in done.stderr
    assert done.stderr.count("done ") == 1, "one rank speaks"
    close(losses(root), losses(reference))
    close(val_losses(root), val_losses(reference))
    assert status(root)["state"] == "done"
    rows = [row for row in metrics(root) if "loss" in row]
    assert (sum(row["time_split"]["bubble"] for row in rows) > 0) == ("--pp" in layout), "waits for neighbours of the pipeline"
    for row in rows:
        split, waits = row["time_split"], {name: group["waited_seconds"] for name, group in row["communication"].items()}
        assert list(split) == ["compute", "communication", "bubble", "data_wait"]
        assert sum(split.values()) == pytest.approx(row["seconds"])
        assert all(value >= 0 for value in split.values())
        assert split["bubble"] == pytest.approx(waits.pop("pp", 0))
        assert split["communication"] == pytest.approx(sum(waits.values()))
        assert row["communication"]["world"]["calls"] == 1, "what all agree on"
        assert {name for name, group in row["communication"].items() if group["sent_bytes"] > 0} >= {"world"}


def test_schedules_with_chunks_have_the_losses_of_one_rank_and_share_checkpoints(tools, run, make_run):
    four_layers = json.dumps(MODEL | {"num_hidden_layers": 4, "tie_word_embeddings": True})
    roots = {}
    for name in ("one", "chunks"):
        roots[name] = make_run(name)
        (roots[name] / "model.json").write_text(four_layers)
    assert train(run, roots["one"]).rc == 0
    root = roots["chunks"]
    stages = [(["--pp", "2", "--micro-batch", "1", "--pp-schedule", "interleaved"], 7, "pp 2 interleaved virtual-stages 2"),
              (["--pp", "2", "--micro-batch", "1"], 11, "pp 2"),
              (["--pp", "2", "--micro-batch", "1", "--pp-schedule", "zbv"], 15, "pp 2 zbv")]
    written = None
    for layout, stop, note in stages:
        done = mpi(tools, 2, "train", "--config", root / "run.ini", *layout, "--stop-at-step", stop)
        assert done.rc == 75, done.stderr
        if written:
            assert f"(written as {written})" in done.stderr
        written = note
    done = train(run, root)
    assert done.rc == 0, done.stderr
    assert f"(written as {written})" in done.stderr
    close(losses(root), losses(roots["one"]))
    close(val_losses(root), val_losses(roots["one"]))


def test_sequence_parallel_validates_a_last_batch_that_cannot_be_cut(tools, run, make_run):
    # 15 sequences of 31 tokens: the last batch is one sequence, which two ranks cannot share.
    edits = {"seq-len = 32": "seq-len = 31", "tokens = 500": "tokens = 465"}
    alone, cut = make_run("alone", replace=edits), make_run("cut", replace=edits)
    assert train(run, alone).rc == 0
    done = mpi(tools, 2, "train", "--config", cut / "run.ini", "--tp", "2", "--sequence-parallel", "--check-replicas-every", "8")
    assert done.rc == 0, done.stderr
    assert "layout tp 2 (sequence parallel)" in done.stderr
    close(losses(cut), losses(alone))
    assert val_losses(cut)
    close(val_losses(cut), val_losses(alone))
    assert json.loads((cut / "run" / "plan.json").read_text())["layout"]["sequence_parallel"] is True


def test_sequence_parallel_that_cannot_cut_is_refused_and_without_ranks_it_says_so(run, make_run):
    root = make_run(replace={"seq-len = 32": "seq-len = 31"})
    refused = run("train", "--config", root / "run.ini", "--tp", "2", "--micro-batch", "1", "--sequence-parallel", "--dry-run")
    assert refused.rc == 2
    assert refused.message == ("plimsoll-train: sequence-parallel cannot cut micro-batch 1 x seq-len 31 = 31 tokens over tp 2 (it does not "
                               "divide). nearest: micro-batch 2, or without sequence-parallel"), refused.stderr
    alone = run("train", "--config", root / "run.ini", "--sequence-parallel", "--dry-run")
    assert alone.rc == 0, alone.stderr
    assert "sequence-parallel has no effect (tp is 1: there are no ranks to cut tokens over)" in alone.stderr
    estimate = run("estimate", "--config", root / "run.ini", "--tp", "2")
    assert re.search(r"^sequence parallel +[\d.]+   [+-]\d+ %", estimate.stdout, re.M), estimate.stdout
    cut = run("estimate", "--config", root / "run.ini", "--tp", "2", "--sequence-parallel")
    assert "dp 1 x tp 2 (sequence parallel) x pp 1" in cut.stdout
    assert re.search(r"^no sequence parallel +[\d.]+   [+-]\d+ %", cut.stdout, re.M), cut.stdout


def test_copies_are_compared_at_their_steps(tools, make_run, reference):
    root = make_run()
    done = mpi(tools, 4, "train", "--config", root / "run.ini", "--tp", "2", "--micro-batch", "1",
               "--check-replicas-every", "8")
    assert done.rc == 0, done.stderr
    assert [row["step"] for row in metrics(root) if row.get("replicas_equal")] == [8, 16]
    close(losses(root), losses(reference))


def test_a_checkpoint_goes_on_in_any_layout(tools, run, make_run, reference):
    root = make_run()
    stages = [(2, ["--tp", "2"], 6), (2, ["--pp", "2"], 9), (4, ["--tp", "2", "--zero", "3", "--layout.resident", "0B", "--micro-batch", "1"], 13)]
    written = "dp 1"
    for ranks, layout, stop in stages:
        done = mpi(tools, ranks, "train", "--config", root / "run.ini", *layout, "--stop-at-step", stop)
        assert done.rc == 75, done.stderr
        if stop > 6:
            assert f"(written as {written})" in done.stderr
        written = {6: "tp 2", 9: "pp 2", 13: "dp 2 tp 2 zero 3"}[stop]
        verified = run("reshard", "verify", root / "run")
        assert verified.rc == 0, verified.stderr
    done = train(run, root)
    assert done.rc == 0, done.stderr
    assert f"(written as {written})" in done.stderr
    close(losses(root), losses(reference))


def test_the_same_layout_goes_on_to_the_bit(tools, make_run):
    whole, stopped = make_run("whole"), make_run("stopped")
    layout = ["--tp", "2"]
    assert mpi(tools, 2, "train", "--config", whole / "run.ini", *layout).rc == 0
    assert mpi(tools, 2, "train", "--config", stopped / "run.ini", *layout, "--stop-at-step", 7).rc == 75
    assert mpi(tools, 2, "train", "--config", stopped / "run.ini", *layout).rc == 0
    assert losses(stopped) == losses(whole)
    assert weights(stopped, 20) == weights(whole, 20)


def test_a_world_that_does_not_match_is_refused_once(tools, make_run):
    root = make_run()
    done = mpi(tools, 2, "train", "--config", root / "run.ini", "--tp", "4")
    assert done.rc == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("plimsoll-train: ")]
    assert lines == ["plimsoll-train: tp*pp*dp = 4*1*1 = 4 does not equal world size 2 (2 ranks would be missing). world size must "
                     "be a multiple of tp*pp = 4. nearest: 4 ranks"], done.stderr
    assert not (root / "run").exists()


def test_a_dry_run_says_it_once_and_judges_by_the_limit_of_the_planned_ranks(tools, run, make_run):
    root = make_run()
    alone = run("train", "--config", root / "run.ini", "--tp", "2", "--pp", "2", "--dry-run")
    assert alone.rc == 0, alone.stderr
    estimate = run("estimate", "--config", root / "run.ini", "--tp", "2", "--pp", "2")
    limit = re.search(r"limit of a rank: (.*?) \(memory of this machine / 4 ranks\)", estimate.stdout).group(1)
    assert re.search(r"^plan .*limit " + re.escape(limit), alone.stderr, re.M), alone.stderr
    two = mpi(tools, 2, "train", "--config", root / "run.ini", "--tp", "2", "--pp", "2", "--dry-run")
    assert two.rc == 0 and two.stderr == alone.stderr
    refused = mpi(tools, 2, "train", "--config", root / "run.ini", "--tp", "3", "--dry-run")
    assert refused.rc == 2
    assert refused.stderr.count("attention heads cannot be split over tp 3") == 1, refused.stderr


def rank_pids(launcher):
    children = subprocess.run(["ps", "-eo", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in children.splitlines()]
    below, found = {launcher}, []
    for _ in range(4):
        below |= {int(pid) for pid, parent, _ in rows if int(parent) in below}
    for pid, _, name in rows:
        if int(pid) in below and name.startswith("plimsoll-train"):
            found.append(int(pid))
    return sorted(found)


def long_run(tools, make_run, *args, **popen):
    root = make_run(replace={"steps = 20": "steps = 20000", "warmup = 4": "warmup = 10"})
    process = subprocess.Popen(["mpiexec", "-n", "2", str(tools / "plimsoll-train"), "--config", str(root / "run.ini"), *args],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=tool_environment(), **popen)
    wait_for_step(root, 5, process)
    return root, process


def test_a_killed_rank_ends_the_job_and_leaves_what_it_did(tools, run, make_run):
    root, process = long_run(tools, make_run, "--tp", "2")
    begin = time.monotonic()
    os.kill(rank_pids(process.pid)[1], signal.SIGKILL)
    process.communicate(timeout=30)
    assert time.monotonic() - begin < 10
    assert process.returncode != 0
    slots = sorted((root / "run" / "ranks").glob("rank_*.status"))
    assert [slot.name for slot in slots] == ["rank_00000.status", "rank_00001.status"]
    for slot in slots:
        content = slot.read_bytes()
        assert content[:8] == b"PLIMRANK"
        assert int.from_bytes(content[48:56], "little") >= 5, "the step"
        assert content[232:328].rstrip(b"\0"), "the operation"


def test_signals_stop_all_ranks_at_one_step(tools, make_run):
    root, process = long_run(tools, make_run, "--pp", "2")
    for pid in rank_pids(process.pid):
        os.kill(pid, signal.SIGUSR2)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 75, stderr
    assert status(root)["state"] == "stopped"
    assert status(root)["reason"] == "SIGUSR2"
    assert stderr.count("stopped ") == 1


def test_ctrl_c_under_mpiexec_saves_and_stops(tools, make_run):
    root, process = long_run(tools, make_run, "--tp", "2", start_new_session=True)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to the launcher and whoever shares its group
    process.communicate(timeout=60)
    ended = status(root)
    # The launcher's own exit code after it was interrupted says nothing (architecture, section 5).
    assert (ended["state"], ended["exit"], ended["reason"]) == ("stopped", 75, "SIGINT")
    assert (root / "run" / "ckpt" / f"step_{ended['step']:08d}" / "COMMIT").exists()


def test_a_diverging_run_says_so_once(tools, make_run):
    root = make_run(replace={"lr = 3e-3": "lr = 1e30", "warmup = 4": "warmup = 0", "schedule = wsd": "schedule = constant",
                             "decay = 20%\n": ""})
    done = mpi(tools, 2, "train", "--config", root / "run.ini", "--tp", "2")
    assert done.rc == 93, done.stderr
    assert done.stderr.count("plimsoll-train: ") == 1, done.stderr
    assert status(root)["exit"] == 93


def test_a_run_that_does_not_fit_is_refused_before_it_starts(tools, make_run):
    root = make_run()
    done = mpi(tools, 2, "train", "--config", root / "run.ini", "--tp", "2", "--memory-limit", "440KiB")
    assert done.rc == 2
    message = [line for line in done.stderr.splitlines() if line.startswith("plimsoll-train: ")]
    assert len(message) == 1, done.stderr
    assert re.match(r"plimsoll-train: plan needs \d+\.\d KiB per rank \(limit 440\.0 KiB, memory-limit; \w+ [\d.]+, \w+ [\d.]+, "
                    r"\w+ [\d.]+ KiB\)\. fits: .*--micro-batch 1 \(", message[0]), message[0]
    assert not (root / "run").exists()
    fits = mpi(tools, 2, "train", "--config", root / "run.ini", "--tp", "2", "--memory-limit", "440KiB", "--micro-batch", "1")
    assert fits.rc == 0, fits.stderr


@pytest.mark.parametrize("ranks, layout", [(1, []), (2, ["--tp", "2"]), (2, ["--pp", "2"]), (2, ["--zero", "1"]),
                                           (2, ["--zero", "3", "--layout.resident", "0B"]),
                                           (2, ["--tp", "2", "--sequence-parallel"])])
def test_the_plan_is_never_below_what_was_measured(tools, make_run, ranks, layout):
    root = make_run()
    done = mpi(tools, ranks, "train", "--config", root / "run.ini", *layout, "--json")
    assert done.rc == 0, done.stderr
    report = json.loads(done.stdout)
    assert 0.9 * report["planned_bytes"] <= report["peak_bytes"] <= report["planned_bytes"]
    plan = json.loads((root / "run" / "plan.json").read_text())
    assert max(rank["peak_bytes"] for rank in plan["ranks"]) == report["planned_bytes"]
    estimate = subprocess.run([str(tools / "plimsoll-estimate"), "--config", str(root / "run.ini"), "--world", str(ranks), *layout,
                               "--json"], env=tool_environment(), capture_output=True, text=True, check=True)
    assert max(rank["peak_bytes"] for rank in json.loads(estimate.stdout)["ranks"]) == report["planned_bytes"]


def test_a_rank_that_hangs_ends_the_job_with_what_is_waited_for(tools, make_run):
    root, process = long_run(tools, make_run, "--tp", "2", "--watchdog", "3s")
    begin = time.monotonic()
    os.kill(rank_pids(process.pid)[1], signal.SIGSTOP)
    _, stderr = process.communicate(timeout=60)
    assert time.monotonic() - begin < 13
    assert process.returncode != 0
    assert re.search(r"plimsoll-train: rank 0 \(step \d+, in all_(reduce|gather) of '\w+' #\d+\): ", stderr), stderr
    assert re.search(r"rank 1: step \d+|rank 1 \(.*step \d+", stderr), stderr
    assert status(root)["state"] == "failed"
    assert "rank 0 (step " in status(root)["reason"]
