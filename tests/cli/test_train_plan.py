"""What plimsoll-train measures is what plimsoll-estimate says, category by category."""

import json
import os
import subprocess

import pytest
from conftest import tool_environment
from train_runs import corpus, make_run, mpi  # noqa: F401


def planned(tools, root, ranks, layout):
    done = subprocess.run([str(tools / "plimsoll-estimate"), "--config", str(root / "run.ini"), "--world", str(ranks), *layout,
                           "--json"], env=tool_environment(), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("ranks, layout", [(1, []), (2, ["--tp", "2"]), (2, ["--pp", "2"]), (2, ["--dp", "2", "--zero", "1"]),
                                           (2, ["--dp", "2", "--zero", "2", "--layout.bucket", "0B"])])
def test_categories_at_the_peak_are_as_planned(tools, make_run, ranks, layout):
    root = make_run(replace={"steps = 20": "steps = 4", "warmup = 4\n": "", "decay = 20%\n": "", "every = 8": "every = never"})
    plan = planned(tools, root, ranks, layout)
    done = mpi(tools, ranks, "train", "--config", root / "run.ini", *layout)
    assert done.rc == 0, done.stderr
    rows = [json.loads(line) for line in (root / "run/metrics.jsonl").read_text().splitlines()]
    measured = next(row for row in rows if row["step"] == 3 and "loss" in row)["peak_by_category"]
    first = {entry["name"]: entry["bytes"] for entry in plan["ranks"][0]["categories"] if entry["bytes"] > 0}
    assert measured == first  # metrics are those of rank 0, which is on the first stage


def test_validation_is_part_of_the_peak(tools, make_run):
    root = make_run(replace={"tokens = 500\n": "micro-batch = 16\n"})
    plan = planned(tools, root, 1, [])
    assert plan["ranks"][0]["validation"]["bytes"] > plan["ranks"][0]["step"]["bytes"]
    done = mpi(tools, 1, "train", "--config", root / "run.ini", "--json")
    assert done.rc == 0, done.stderr
    assert json.loads(done.stdout)["peak_bytes"] <= plan["peak_bytes"]
    assert json.loads(done.stdout)["peak_bytes"] > plan["ranks"][0]["step"]["bytes"]


def test_the_limit_of_a_cluster_file_counts(tools, make_run):
    root = make_run()
    cluster = root / "small.json"
    cluster.write_text('{"device_memory": "100KiB"}')
    done = mpi(tools, 1, "train", "--config", root / "run.ini", "--cluster", cluster)
    assert done.rc == 2
    assert "(limit 100.0 KiB, a device of cluster 'small'; " in done.stderr
    assert not os.path.exists(root / "run")
