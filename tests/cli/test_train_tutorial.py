"""The sh blocks of docs/tutorial.md run as printed, in order, in an empty folder."""

import os
import re
import subprocess
from pathlib import Path


def test_the_tutorial_runs_as_printed(tools, tmp_path):
    text = (Path(os.environ["PLIMSOLL_SOURCE_DIR"]) / "docs" / "tutorial.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 7
    script = "set -eu\n" + "\n".join(blocks)
    env = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}")
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resume     ckpt/step_00000030" in done.stderr
    assert "dry run    ok" in done.stderr
    assert "cp 2 is not available in this version" in done.stderr
    assert "--steps" in done.stderr
    assert "run.seed changed from '7' to '8'" in done.stderr
    for name in ("ships", "ships-tp", "ships-pp"):
        assert (tmp_path / "runs" / name / "ckpt" / "step_00000060" / "COMMIT").exists(), name
    assert (tmp_path / "runs" / "ships" / "report.html").exists()
    assert "(written as tp 2)" in done.stderr
    assert not (tmp_path / "runs" / "too-big").exists()
