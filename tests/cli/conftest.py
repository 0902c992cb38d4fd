"""Fixtures of the command line tests.

run(tool, *args, env=None, cwd=None, timeout=60, stdin=None) -> Result(rc, stdout, stderr); `tool` is "shard" for
plimsoll-shard. Variables of the caller that would change a tool's options (PLIMSOLL_SECTION_KEY) are removed; a value of None
in `env` removes a variable. tools is the directory of the binaries, source_dir the source tree.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

KEPT = {"PLIMSOLL_BIN", "PLIMSOLL_SOURCE_DIR"}


@dataclass
class Result:
    rc: int
    stdout: str
    stderr: str

    @property
    def message(self):
        """The one line on stderr that an error is."""
        assert self.stderr.count("\n") == 1, f"not one line: {self.stderr!r}"
        return self.stderr.rstrip("\n")


def tool_environment(extra=None):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PLIMSOLL_") or name in KEPT}
    for name, value in (extra or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    return env


@pytest.fixture(scope="session")
def tools():
    path = os.environ.get("PLIMSOLL_BIN")
    assert path, "PLIMSOLL_BIN is not set. run this through ctest, or set it to the build's bin directory"
    return Path(path)


@pytest.fixture(scope="session")
def source_dir():
    return Path(os.environ.get("PLIMSOLL_SOURCE_DIR", Path(__file__).resolve().parents[2]))


def run_tool(tools, cwd, tool, *args, env=None, timeout=60, stdin=None):
    command = [str(tools / f"plimsoll-{tool}"), *map(str, args)]
    done = subprocess.run(command, env=tool_environment(env), cwd=cwd, timeout=timeout, input=stdin, capture_output=True,
                          text=True, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run(tools, tmp_path):
    def call(tool, *args, cwd=None, **options):
        return run_tool(tools, cwd or tmp_path, tool, *args, **options)

    return call
