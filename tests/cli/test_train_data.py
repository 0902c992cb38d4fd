"""Training data of plimsoll-train: several sources, further validation sets, orders, appended data, Megatron's files."""

import json
import struct

import h5py
import pytest
from conftest import run_tool
from train_runs import corpus, losses, make_run, metrics, mpi, reference, train  # noqa: F401

TWO_SOURCES = """[data.words]
shards = {root}/tokens/*.h5
weight = 3
[data.digits]
shards = {root}/digits/*.h5
weight = 1
"""


@pytest.fixture(scope="module")
def digits(tools, corpus):
    """A second corpus beside the first."""
    lines = [{"text": " ".join(str(i * k) for k in range(30))} for i in range(40)]
    (corpus / "digits.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run_tool(tools, corpus, "shard", "--input", corpus / "digits.jsonl", "--tokenizer", "bytes", "--out",
                    corpus / "digits")
    assert done.rc == 0, done.stderr
    return corpus / "digits"


@pytest.fixture
def blend(make_run, digits):
    """A run of two sources; edits are appended to the run file."""

    def make(name="a", append="", **edits):
        replace = {"[data.words]\nshards = {root}/tokens/*.h5\n": TWO_SOURCES}
        root = make_run(name, append=append, **edits)
        (root / "digits").symlink_to(digits)
        text = (root / "run.ini").read_text()
        for old, new in replace.items():
            assert old.format(root=root) in text
            text = text.replace(old.format(root=root), new.format(root=root))
        (root / "run.ini").write_text(text)
        return root

    return make


def test_a_blend_shows_its_sources_and_goes_on_to_the_bit(run, blend):
    through, stopped = blend("through"), blend("stopped")
    done = train(run, through, "--stop-at-step", 9)
    assert done.rc == 75, done.stderr
    table = [line.split() for line in done.stderr.splitlines()]
    at = next(i for i, line in enumerate(table) if line[:2] == ["data", "source"])
    assert table[at][2:] == ["shards", "tokens", "share", "epochs", "in", "run"]
    assert table[at + 1][0] == "words" and table[at + 1][3:5] == ["75.00", "%"]
    assert table[at + 2][0] == "digits" and table[at + 2][3:5] == ["25.00", "%"]
    assert train(run, stopped, "--stop-at-step", 4).rc == 75
    assert train(run, stopped, "--stop-at-step", 9, "--micro-batch", 1).rc == 75
    assert losses(stopped) == pytest.approx(losses(through), rel=1e-5)
    done = train(run, stopped, "--data.digits.weight", 2)
    assert done.rc == 2
    assert "data.digits.weight changed from '1' to '2'" in done.stderr


def test_a_blend_goes_on_at_other_sizes_of_dp_across_an_epoch(tools, run, blend):
    """Megatron-LM PR 725, torchtitan 811: a blend that went on with other ranks repeated or skipped data."""
    common = ("--precision", "fp64", "--seq-len", 64, "--data.shuffle", "window:8",
              "--data.digits.weight", 57, "--data.digits.max-epochs", 2, "--global-batch", 8, "--eval.every", "never", "--train.steps", 14)
    through, stopped = blend("through"), blend("stopped")
    done = train(run, through, *common)
    assert done.rc == 0, done.stderr
    row = next(line.split() for line in done.stderr.splitlines() if line.split()[:1] == ["digits"])
    assert float(row[-1]) > 1.1, "one source goes through an epoch's end"
    for ranks, step in ((1, 4), (2, 8), (4, None)):
        stop = () if step is None else ("--stop-at-step", step)
        done = mpi(tools, ranks, "train", "--config", stopped / "run.ini", *common, *stop)
        assert done.rc == (0 if step is None else 75), done.stderr
    expected, found = losses(through), losses(stopped)
    assert len(found) == 14
    # fp64; the ranks' sums come in another order.
    assert found == pytest.approx(expected, rel=1e-11)
    valid = [{row["step"]: row["valid_tokens"] for row in metrics(root) if "loss" in row} for root in (through, stopped)]
    assert valid[0] == valid[1]


def test_too_many_epochs_of_a_source_are_refused_with_numbers(run, blend):
    done = train(run, blend(), "--data.digits.max-epochs", "0.05")
    assert done.rc == 2
    assert "[data.digits] would be read 0." in done.stderr
    assert "samples, max-epochs 0.05). lower its weight, shorten the run, add data, or raise max-epochs" in done.stderr


def test_a_weight_that_rounds_to_nothing_is_refused(run, blend):
    done = train(run, blend(), "--data.digits.weight", "1e-7")
    assert done.rc == 2
    assert "weight 1e-07 in [data.digits] is 3.3e-08 of all weights (less than 1 / 131072" in done.stderr


def test_named_validation_sets_are_reported_by_name(run, blend):
    root = blend(append="[eval.digits]\nshards = {root}/digits/*.h5\nevery = 4\ntokens = 100\n")
    text = (root / "run.ini").read_text().replace("{root}", str(root))
    (root / "run.ini").write_text(text)
    done = train(run, root, "--stop-at-step", 8)
    assert done.rc == 75, done.stderr
    assert "[eval.digits]" in done.stderr
    rows = [row for row in metrics(root) if "val_loss" in row]
    assert [(row["step"], row.get("set"), row["val_tokens"]) for row in rows] == [
        (4, "digits", 100), (8, None, 500), (8, "digits", 100)]


@pytest.mark.parametrize("order", ["none", "window:600"])
def test_orders_that_are_not_global_are_taken_and_guarded(run, make_run, order):
    root = make_run()
    assert train(run, root, "--data.shuffle", order, "--stop-at-step", 3).rc == 75
    done = train(run, root, "--stop-at-step", 5)
    assert done.rc == 2
    assert f"data.shuffle changed from '{order}' to 'global'" in done.stderr


def test_appended_data_is_a_stage_and_never_a_silent_reshuffle(run, make_run, digits):
    roots = [make_run("straight"), make_run("stopped")]
    for root in roots:
        (root / "digits").symlink_to(digits)
        assert train(run, root, "--stop-at-step", 4).rc == 75
        text = (root / "run.ini").read_text()
        (root / "run.ini").write_text(text.replace(f"{root}/tokens/*.h5\n", f"{root}/tokens/*.h5 {root}/digits/*.h5\n", 1))
    straight, stopped = roots
    done = train(run, stopped, "--stop-at-step", 9)
    assert done.rc == 2
    assert "was trained on other data (shards 1 -> 2). use the same shards, --data-change append if new ones only" in done.stderr
    append = ("--data-change", "append", "--stop-at-step")
    done = train(run, straight, *append, 9)
    assert done.rc == 75, done.stderr
    assert "stage 2 begins at sample 16: all of the present data in a new order" in done.stderr
    assert train(run, stopped, *append, 6).rc == 75
    assert train(run, stopped, *append, 7).rc == 75
    done = train(run, stopped, "--stop-at-step", 9)
    assert done.rc == 75, done.stderr
    assert "begins at sample" not in done.stderr
    assert losses(stopped) == losses(straight)
    text = (stopped / "run.ini").read_text()
    (stopped / "run.ini").write_text(text.replace(f"{stopped}/tokens/*.h5 {stopped}/digits/*.h5", f"{stopped}/digits/*.h5", 1))
    done = train(run, stopped, *append, 12)
    assert done.rc == 2
    assert "the data had 2 shards and now has 1" in done.stderr or "'words' had 2 shards and now has 1" in done.stderr


def write_megatron(prefix, shard):
    """The documents of a token shard as Megatron's pair."""
    with h5py.File(shard) as file:
        tokens = file["tokens"][()].astype("<u2")
        ends = file["documents/ends"][()].astype("<i8")
    starts = [0, *ends[:-1]]
    lengths = [end - start for start, end in zip(starts, ends)]
    prefix.with_suffix(".bin").write_bytes(tokens.tobytes())
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
        + struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(lengths)}q", *[2 * s for s in starts])
        + struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1)))


def test_a_megatron_pair_is_read_in_place(run, make_run, corpus, reference):
    write_megatron(corpus / "pair", next((corpus / "tokens").glob("*.h5")))
    root = make_run()
    text = (root / "run.ini").read_text()
    (root / "run.ini").write_text(text.replace(f"{root}/tokens/*.h5", f"megatron:{corpus}/pair", 1))
    done = train(run, root, "--stop-at-step", 8)
    assert done.rc == 75, done.stderr
    assert losses(root) == {step: loss for step, loss in losses(reference).items() if step <= 8}
    rows = [row for row in metrics(root) if "loss" in row]
    assert all(0 <= row["time_split"]["data_wait"] < row["seconds"] for row in rows)
    done = train(run, make_run("small"), "--data.words.shards", f"megatron:{corpus}/pair", "--data.words.vocab", 100)
    assert done.rc == 93
    assert "not below the vocabulary of 100 (vocab of its section, or the model's)" in done.stderr


def test_best_fit_packing_goes_on_to_the_bit_and_is_guarded(run, blend):
    through, stopped = blend("through"), blend("stopped")
    packed = ("--data.packing", "best-fit", "--seq-len", 64, "--eval.every", "never", "--stop-at-step")
    done = train(run, through, *packed, 6)
    assert done.rc == 75, done.stderr
    assert "packing best-fit: " in done.stderr and "% of the places for labels are filled" in done.stderr
    steps = [row for row in metrics(through) if "loss" in row]
    assert all(row["valid_tokens"] <= 4 * 64 for row in steps) and any(row["valid_tokens"] < 4 * 64 for row in steps)
    assert train(run, stopped, *packed, 2).rc == 75
    assert train(run, stopped, *packed, 6).rc == 75
    assert losses(stopped) == losses(through)
    done = train(run, stopped, "--seq-len", 64, "--stop-at-step", 8)
    assert done.rc == 2
    assert "data.packing changed from 'best-fit' to 'concat'" in done.stderr


def test_fim_goes_on_to_the_bit_and_needs_its_marks(run, make_run):
    fim = ("--data.fim-rate", "0.8", "--data.fim-tokens", 1, 2, 3)
    through, stopped = make_run("through"), make_run("stopped")
    assert train(run, through, *fim, "--stop-at-step", 6).rc == 75
    assert train(run, stopped, *fim, "--stop-at-step", 3).rc == 75
    assert train(run, stopped, *fim, "--stop-at-step", 6).rc == 75
    assert losses(stopped) == losses(through)
    done = train(run, stopped, *fim[:2])
    assert done.rc == 2 and "data.fim-rate is set, data.fim-tokens is not" in done.stderr
    done = train(run, stopped, *fim[:2], "--data.fim-tokens", 1, 2, 300)
    assert done.rc == 2 and "data.fim-tokens: id 300 is not below the model's vocabulary of 257" in done.stderr


MASKED = ("--data.document-masks",)


def masked_run(make_run, name):
    """Samples long enough that documents end within them."""
    root = make_run(name)
    text = (root / "run.ini").read_text()
    (root / "run.ini").write_text(text.replace("seq-len = 32", "seq-len = 64"))
    return root


def test_document_masks_are_shown_and_go_on_to_the_bit_and_are_guarded(run, make_run):
    through, stopped, plain = (masked_run(make_run, name) for name in ("through", "stopped", "plain"))
    done = train(run, through, *MASKED, "--stop-at-step", 9)
    assert done.rc == 75, done.stderr
    assert "document masks: attention and positions begin anew with each of " in done.stderr
    assert "tokens on average)" in done.stderr
    assert train(run, stopped, *MASKED, "--stop-at-step", 4).rc == 75
    assert train(run, stopped, *MASKED, "--stop-at-step", 9).rc == 75
    assert losses(stopped) == losses(through)
    done = train(run, plain, "--stop-at-step", 9)
    assert done.rc == 75 and "document masks" not in done.stderr
    masked, unmasked = losses(through), losses(plain)
    assert all(masked[step] != unmasked[step] for step in masked)
    valid = [[row["valid_tokens"] for row in metrics(root) if "loss" in row] for root in (through, plain)]
    assert valid[0] == valid[1], "the same labels count"
    validation = [[row["val_loss"] for row in metrics(root) if "val_loss" in row] for root in (through, plain)]
    assert validation[0] and validation[0] != validation[1]
    done = train(run, stopped, "--stop-at-step", 12)
    assert done.rc == 2
    assert "data.document-masks changed from 'true' to 'false'" in done.stderr
    done = train(run, stopped, "--allow-change", "data.document-masks", "--stop-at-step", 12)
    assert done.rc == 75, done.stderr
    assert "begins at sample" not in done.stderr, "the order is the same with and without"


def test_document_masks_take_yes_or_no(run, make_run):
    root = masked_run(make_run, "a")
    text = (root / "run.ini").read_text()
    (root / "run.ini").write_text(text.replace("[data]\n", "[data]\ndocument-masks = perhaps\n"))
    done = train(run, root, "--dry-run")
    assert done.rc == 2 and "document-masks" in done.stderr and "perhaps" in done.stderr
    (root / "run.ini").write_text(text.replace("[data]\n", "[data]\ndocument-masks = yes\n"))
    done = train(run, root, "--dry-run")
    assert done.rc == 0 and "document masks: " in done.stderr
    done = train(run, root, "--reset-attention-mask")
    assert done.rc == 2 and "document-masks" in done.stderr


@pytest.mark.parametrize("packing", ["concat", "best-fit"])
def test_document_masks_depend_on_no_layout(tools, run, make_run, packing):
    common = (*MASKED, "--precision", "fp64", "--data.packing", packing, "--stop-at-step", 8)
    one = masked_run(make_run, "one")
    done = train(run, one, *common)
    assert done.rc == 75, done.stderr
    expected = losses(one)
    val = [row["val_loss"] for row in metrics(one) if "val_loss" in row]
    for number, layout in enumerate([("--tp", 2, "--sequence-parallel"), ("--pp", 2), ("--dp", 2, "--zero", 3),
                                     ("--pp", 2, "--pp-schedule", "zb-h1", "--micro-batch", 1)]):
        root = masked_run(make_run, f"layout{number}")
        done = mpi(tools, 2, "train", "--config", root / "run.ini", *common, *layout)
        assert done.rc == 75, done.stderr
        assert losses(root) == pytest.approx(expected, rel=1e-10), layout
        assert [row["val_loss"] for row in metrics(root) if "val_loss" in row] == pytest.approx(val, rel=1e-10), layout


@pytest.mark.parametrize("layout", [("--pp", 4), ("--pp", 2, "--pp-schedule", "interleaved", "--virtual-stages", 2)])
def test_stages_without_an_end_know_the_documents(tools, run, make_run, layout):
    common = (*MASKED, "--precision", "fp64", "--micro-batch", 1, "--stop-at-step", 4)
    seen = []
    for name in ("one", "staged"):
        root = masked_run(make_run, name)
        model = json.loads((root / "model.json").read_text())
        model["num_hidden_layers"] = 4
        (root / "model.json").write_text(json.dumps(model))
        if name == "one":
            assert train(run, root, *common).rc == 75
        else:
            done = mpi(tools, layout[1], "train", "--config", root / "run.ini", *common, *layout)
            assert done.rc == 75, done.stderr
        seen.append(losses(root))
    assert seen[1] == pytest.approx(seen[0], rel=1e-10)
