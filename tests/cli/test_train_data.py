"""Training data of plimsoll-train: several sources, further validation sets, orders, appended data."""

import json

import pytest
from conftest import run_tool
from train_runs import MODEL, RUN_FILE, corpus, losses, make_run, metrics, train  # noqa: F401

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
