"""Small training runs for tests: corpus, run file, and what a run leaves behind."""

import json
import subprocess
import time

import h5py
import pytest
from conftest import Result, run_tool, tool_environment

MODEL = {
    "model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
}

RUN_FILE = """
[run]
name = small
dir = {root}/run
seed = 3
threads = 1
log-every = 5
[model]
name = {root}/model.json
[layout]
micro-batch = 2
global-batch = 4
[data]
seq-len = 32
[data.words]
shards = {root}/tokens/*.h5
[train]
steps = 20
lr = 3e-3
schedule = wsd
warmup = 4
decay = 20%
[eval]
shards = {root}/tokens/validation/*.h5
every = 8
tokens = 500
[checkpoint]
every = 6
keep-last = 2
"""


@pytest.fixture(scope="module")
def corpus(tools, tmp_path_factory):
    root = tmp_path_factory.mktemp("corpus")
    lines = [{"text": f"line {i} says that {i * 7 % 13} is not {i % 5}, and goes on " * 3} for i in range(120)]
    (root / "words.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run_tool(tools, root, "shard", "--input", root / "words.jsonl", "--tokenizer", "bytes", "--out",
                    root / "tokens", "--validation", "10%")
    assert done.rc == 0, done.stderr
    return root


@pytest.fixture
def make_run(corpus, tmp_path):
    """A directory with model, data and run file; edits replace lines of the run file."""

    def make(name="a", **edits):
        root = tmp_path / name
        root.mkdir()
        (root / "tokens").symlink_to(corpus / "tokens")
        (root / "model.json").write_text(json.dumps(MODEL))
        text = RUN_FILE.format(root=root)
        for old, new in edits.get("replace", {}).items():
            assert old in text
            text = text.replace(old, new)
        (root / "run.ini").write_text(text + edits.get("append", ""))
        return root

    return make


@pytest.fixture(scope="module")
def reference(tools, corpus, tmp_path_factory):
    """An undisturbed run of 20 steps."""
    root = tmp_path_factory.mktemp("reference")
    (root / "tokens").symlink_to(corpus / "tokens")
    (root / "model.json").write_text(json.dumps(MODEL))
    (root / "run.ini").write_text(RUN_FILE.format(root=root))
    done = run_tool(tools, root, "train", "--config", root / "run.ini")
    assert done.rc == 0, done.stderr
    return root


def metrics(root):
    rows = [json.loads(line) for line in (root / "run" / "metrics.jsonl").read_text().splitlines()]
    return rows


def losses(root):
    """Loss of each step; of several attempts the last row counts."""
    return {row["step"]: row["loss"] for row in metrics(root) if "loss" in row}


def status(root):
    return json.loads((root / "run" / "status.json").read_text())


def weights(root, step):
    """All tensors of all states of a committed step, by name."""
    out = {}
    for path in sorted((root / "run" / "ckpt" / f"step_{step:08d}").glob("shard_*.h5")):
        with h5py.File(path) as file:
            def visit(name, item):
                if isinstance(item, h5py.Dataset) and name.split("/")[0] in ("model", "optim") and item.ndim > 0 \
                        and item.dtype.kind == "f":
                    out[name] = item[()].tobytes()
            file.visititems(visit)
    assert out
    return out


def train(run, root, *args, **kwargs):
    return run("train", "--config", root / "run.ini", *args, **kwargs)


def start(tools, root, *args):
    return subprocess.Popen([str(tools / "plimsoll-train"), "--config", str(root / "run.ini"), *args],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=tool_environment())


def wait_for_step(root, step, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if max(losses(root), default=0) >= step:
                return
        except (FileNotFoundError, json.JSONDecodeError):
            pass
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError(f"step {step} did not come")


def wait_for_file(path, process):
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.01)


def mpi(tools, ranks, tool, *args, timeout=120, env=None):
    """The tool under mpiexec."""
    done = subprocess.run(["mpiexec", "-n", str(ranks), str(tools / f"plimsoll-{tool}"), *map(str, args)],
                          env=tool_environment(env), timeout=timeout, capture_output=True, text=True, check=False)
    return Result(done.returncode, done.stdout, done.stderr)
