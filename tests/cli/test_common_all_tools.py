"""What holds for every tool that was built."""

import os
import re
import time
from pathlib import Path

import pytest

TOOLS = sorted(path.name.removeprefix("plimsoll-") for path in Path(os.environ.get("PLIMSOLL_BIN", ".")).glob("plimsoll-*")
               if os.access(path, os.X_OK) and path.name != "plimsoll-make-checkpoint" and not path.name.endswith("-probe"))  # helpers of tests


SAME_MEANING = {"threads", "memory-limit", "seed"}


def commands_of(run, tool):
    """The first words of each use: [] for a use without sub-command."""
    text = run(tool, "--help").stdout
    found = [] if "usage: plimsoll-" + tool + " COMMAND" in text else [[]]
    if "\ncommands\n" in text:
        block = text.split("\ncommands\n")[1].split("\n\n")[0]
        found += [[line.split()[0]] for line in block.splitlines() if re.match(r"  \S", line)]
    return found


def test_there_are_tools():
    assert "echo" in TOOLS


@pytest.mark.parametrize("tool", TOOLS)
def test_help_fits_100_columns_and_ends_well(run, tool):
    for command in [[], *commands_of(run, tool)]:
        done = run(tool, *command, "--help")
        assert (done.rc, done.stderr) == (0, "")
        assert done.stdout.startswith(f"plimsoll-{tool}")
        assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize("tool", TOOLS)
def test_version_is_one_line(run, tool):
    done = run(tool, "--version")
    assert done.rc == 0
    assert re.fullmatch(rf"plimsoll-{tool} \d+\.\d+\.\d+ \(build \S+\)\n", done.stdout)


@pytest.mark.parametrize("tool", TOOLS)
def test_an_unknown_option_is_one_line_and_exit_2(run, tool):
    for command in commands_of(run, tool):
        done = run(tool, *command, "--no-such-option-anywhere")
        assert done.rc == 2
        assert done.message.startswith(f"plimsoll-{tool}: unknown option '--no-such-option-anywhere'")


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool in ("shard", "reshard", "report", "bench", "echo")])
def test_help_is_quick_where_no_model_runs(run, tool):
    times = []
    for _ in range(7):
        start = time.monotonic()
        assert run(tool, "--help").rc == 0
        times.append(time.monotonic() - start)
    assert min(times) < 0.1, f"best of {len(times)}: {min(times):.3f} s"


@pytest.mark.parametrize("tool", TOOLS)
def test_a_flag_means_one_thing_in_all_tools(run, tool):
    """A tool's own option never takes the short name of a run-file key with another meaning. Those of SAME_MEANING have the same
    one in commands that read no run file: of the process, per rank, of keyed choices."""
    reference = {}
    for line in run("echo", "show", "--help").stdout.split("\n[run]\n")[1].splitlines():
        found = re.match(r"  --([a-z0-9-]+)( |$)", line)
        if found:
            reference[found[1]] = line
    for command in commands_of(run, tool):
        own = run(tool, *command, "--help").stdout.split("\noptions\n")[-1].split("\n\n")[0]
        for line in own.splitlines():
            found = re.match(r"  --([a-z0-9-]+)( |$)", line)
            assert not found or found[1] in SAME_MEANING or found[1] not in reference, f"{tool}: {line}"
