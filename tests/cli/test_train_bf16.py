"""plimsoll-train --precision bf16: learns, goes on to the bit, and continues fp32 runs and is continued by them."""

import json

import h5py
import numpy
import pytest
from train_runs import corpus, losses, make_run, metrics, mpi, reference, train, weights  # noqa: F401

BF16 = ("--precision", "bf16")
CHANGE = ("--allow-change", "train.precision")


def model_tensors(root, step):
    """Tensors of the model as fp32 bits, by dataset name."""
    out = {}
    for path in sorted((root / "run" / "ckpt" / f"step_{step:08d}").glob("shard_*.h5")):
        with h5py.File(path) as file:
            def visit(name, item):
                if isinstance(item, h5py.Dataset) and name.startswith("model/"):
                    out[name] = item[()]
            file.visititems(visit)
    return out


def test_bf16_learns_as_fp32_does_and_says_what_it_is(run, make_run, reference):
    root = make_run()
    done = train(run, root, *BF16)
    assert done.rc == 0, done.stderr
    assert "bf16" in done.stderr
    got, expected = losses(root), losses(reference)
    # Activations carry 2^-8; the gate is ten times what was seen.
    assert got[1] == pytest.approx(expected[1], rel=2e-3)
    assert all(got[step] == pytest.approx(expected[step], rel=2e-2) for step in expected)
    assert got[20] < got[1] - 0.5
    rows = [row for row in metrics(root) if "loss" in row]
    assert {row["precision"] for row in rows} == {"bf16"}
    # Half the bytes of parameters, and a master beside the moments (padding of tensors to 256 B aside).
    peak = rows[-1]["peak_by_category"]
    fp32 = [row for row in metrics(reference) if "loss" in row][-1]["peak_by_category"]
    assert peak["optimizer"] == pytest.approx(1.5 * fp32["optimizer"], rel=0.1)
    assert peak["parameters"] == pytest.approx(0.5 * fp32["parameters"], rel=0.1)
    plan = json.loads((root / "run" / "plan.json").read_text())
    assert plan["dtype"] == "bf16"
    assert abs(rows[-1]["peak_bytes"] - plan["ranks"][0]["step"]["bytes"]) <= 0.02 * plan["ranks"][0]["step"]["bytes"]


def test_bf16_goes_on_to_the_bit(tools, run, make_run):
    through, stopped = make_run("through"), make_run("stopped")
    assert train(run, through, *BF16, "--stop-at-step", 10).rc == 75
    assert train(run, stopped, *BF16, "--stop-at-step", 6).rc == 75
    assert train(run, stopped, *BF16, "--stop-at-step", 10).rc == 75
    assert losses(stopped) == losses(through)
    assert weights(stopped, 10) == weights(through, 10)


@pytest.mark.parametrize("zero", ["1", "3"])
def test_shards_of_the_master_go_on_to_the_bit_and_in_another_layout(tools, run, make_run, zero):
    through, stopped = make_run("through"), make_run("stopped")
    layout = [*BF16, "--zero", zero, "--layout.resident", "0B"]
    for root, stops in ((through, [9]), (stopped, [5, 9])):
        for stop in stops:
            done = mpi(tools, 2, "train", "--config", root / "run.ini", *layout, "--stop-at-step", stop)
            assert done.rc == 75, done.stderr
    assert losses(stopped) == losses(through)
    assert weights(stopped, 9) == weights(through, 9)
    assert run("reshard", "verify", stopped / "run", "--level", "full").rc == 0
    done = mpi(tools, 2, "train", "--config", stopped / "run.ini", *BF16, "--tp", "2", "--stop-at-step", 12)
    assert done.rc == 75, done.stderr


def test_the_checkpoint_holds_the_master_in_fp32(run, make_run):
    root = make_run()
    assert train(run, root, *BF16, "--stop-at-step", 6).rc == 75
    tensors = model_tensors(root, 6)
    assert tensors and all(values.dtype == numpy.float32 for values in tensors.values())
    low = numpy.concatenate([values.ravel().view(numpy.uint32) & 0xFFFF for values in tensors.values()])
    assert (low != 0).mean() > 0.9, "a bf16 value would have no bits there"
    inspected = json.loads(run("reshard", "inspect", root / "run", "--json").stdout)
    assert inspected["precision"] == "bf16"


def test_fp32_and_bf16_continue_each_other(run, make_run, reference):
    root = make_run()
    assert train(run, root, "--stop-at-step", 6).rc == 75
    refused = train(run, root, *BF16, "--stop-at-step", 12)
    assert refused.rc == 2
    assert "train.precision changed from 'fp32' to 'bf16'" in refused.stderr
    assert train(run, root, *BF16, *CHANGE, "--stop-at-step", 12).rc == 75
    done = train(run, root, "--precision", "fp32", *CHANGE)
    assert done.rc == 0, done.stderr
    got, expected = losses(root), losses(reference)
    assert all(got[step] == expected[step] for step in range(1, 7))
    assert all(got[step] == pytest.approx(expected[step], rel=2e-2) for step in expected)


def test_a_change_of_precision_keeps_every_bit_of_the_weights(run, make_run):
    # An update of nothing: what is saved then is what was loaded.
    root = make_run(replace={"schedule = wsd\n": "schedule = constant\n", "decay = 20%\n": ""})
    assert train(run, root, "--stop-at-step", 6).rc == 75
    before = model_tensors(root, 6)
    frozen = ("--lr", "1e-30", "--weight-decay", "0", "--stop-at-step", 7)
    assert train(run, root, *BF16, *CHANGE, *frozen).rc == 75
    after = model_tensors(root, 7)
    assert before.keys() == after.keys()
    for name, values in before.items():
        assert numpy.array_equal(values, after[name]), name
