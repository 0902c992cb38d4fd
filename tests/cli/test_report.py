"""plimsoll-report as a user runs it, on run directories written here."""

import json
import math
import os
import re
import socket
import subprocess
from html.parser import HTMLParser

import pytest

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'x' \u001b[31m"


def step_row(step, attempt=1, **more):
    row = {"step": step, "loss": 2 + 3 * math.exp(-step / 20), "grad_norm": 0.5, "lr": 1e-3, "tokens_per_second": 1000.0 + step,
           "consumed_samples": 8 * step, "consumed_tokens": 512 * step, "valid_tokens": 512, "updated": True,
           "peak_bytes": 112 << 20, "seconds": 0.5, "phase_seconds": {"data": 0.01, "forward": 0.2, "backward": 0.25},
           "attempt": attempt, "time": f"2026-01-31T12:00:{step % 60:02}.000Z"}
    return {**row, **more}


def event(step, attempt=1, **more):
    return {"step": step, **more, "attempt": attempt, "time": "2026-01-31T12:30:00.000Z"}


class Run:
    """A run directory that is filled bit by bit."""

    def __init__(self, path):
        self.path = path
        (path / "ckpt").mkdir(parents=True)

    def rows(self, rows):
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return self

    def status(self, state, **more):
        status = {"schema": 1, "state": state, "exit": None, "reason": "", "step": 0, "hint": "", "attempt": 1, "host": "elsewhere",
                  "process": 1, "time": "2026-01-31T13:00:00.000Z", **more}
        (self.path / "status.json").write_text(json.dumps(status))
        return self

    def ini(self, name="demo", lr="0.001", file="run.ini"):
        (self.path / file).write_text(
            f"[run]\nname = {name}\n[model]\nname = /m/llama-5m.json\n[layout]\ntp = 2\npp = 1\nglobal-batch = 8\n"
            f"[data]\nseq-len = 64\n[train]\nsteps = 60\nlr = {lr}\nprecision = fp32\n")
        return self

    def plan(self, ranks=1):
        categories = [{"name": "parameters", "bytes": 40 << 20}, {"name": "activations", "bytes": 80 << 20}]
        plan = {"schema": 1, "ranks": [{"rank": r, "categories": categories, "peak_bytes": (120 - r) << 20} for r in range(ranks)]}
        (self.path / "plan.json").write_text(json.dumps(plan))
        return self


@pytest.fixture
def demo(tmp_path):
    """60 steps in two attempts, three of them done twice."""
    made = Run(tmp_path / "runs/demo").ini().ini(lr="0.002", file="run.ini.1").plan(2)
    made.rows([step_row(k) for k in range(1, 34)] + [event(30, val_loss=2.9, bits_per_byte=1.9), event(30, saved_bytes=61200000, seconds=0.07)])
    by_category = {"parameters": 40 << 20, "activations": 72 << 20}
    made.rows([step_row(k, 2, peak_by_category=by_category) for k in range(31, 61)])
    made.rows([event(60, 2, val_loss=2.4, bits_per_byte=1.6), event(60, 2, saved_bytes=61200000, seconds=0.07)])
    (made.path / "ckpt/step_00000060").mkdir()
    (made.path / "ckpt/step_00000060/COMMIT").touch()
    return made.status("done", exit=0, attempt=2)


class Page(HTMLParser):
    """Checks that tags are balanced; collects addresses, text by tag, and classes."""

    VOID = {"meta", "br", "hr", "img", "link", "input"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.addresses, self.text, self.classes = [], [], [], {}, []
        self.feed(text)
        self.close()
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href", "action", "data")]
        self.classes += [value for name, value in attrs if name == "class"]
        assert not any(name.startswith("on") for name, _ in attrs), "an event handler"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        for tag in self.open[-1:]:
            self.text.setdefault(tag, []).append(data)


def page_of(path):
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def test_help_names_examples_and_is_quick(run):
    done = run("report", "--help")
    assert done.rc == 0 and "plimsoll-report runs/demo --text" in done.stdout


def test_links_no_torch_cuda_or_mpi(tools):
    libraries = subprocess.run(["ldd", tools / "plimsoll-report"], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"torch|libcuda|libmpi|hdf5|not found", libraries)


def test_page_is_written_into_the_run(run, demo):
    done = run("report", demo.path)
    assert (done.rc, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"report     {demo.path}/report.html   ") and lines[0].endswith(" kB")
    assert lines[1] == "finished: 60 of 60 steps, loss 4.8537 to 2.1494"
    assert len(lines) == 2
    assert sorted(p.name for p in demo.path.iterdir()) == ["ckpt", "metrics.jsonl", "plan.json", "report.html", "run.ini", "run.ini.1", "status.json"]


def test_page_says_what_the_run_did(run, demo, tmp_path):
    run("report", demo.path, "--out", "page.html")
    text, page = page_of(tmp_path / "page.html")
    assert page.text["h1"] == ["demo"]
    assert "llama-5m" in page.text["p"][0] and "tp 2" in page.text["p"][0]
    assert page.text["strong"] == ["finished: 60 of 60 steps, loss 4.8537 to 2.1494"]
    facts = dict(zip(page.text["dt"], page.text["dd"]))
    assert facts["steps"] == "60 of 60" and facts["tokens"] == "30,720" and facts["validation loss"] == "2.4000"
    assert facts["peak memory"] == "112.0 MiB" and facts["attempts"] == "2" and facts["tokens/s"] == "1,030"
    assert "planned 120.0 MiB (-6.7 %)" in page.text["small"] and "3 steps done again" in page.text["small"]
    titles = page.text["h2"]
    for title in ("Loss", "Gradient norm", "Learning rate", "Tokens per second", "Time of a step, s", "Peak memory of a rank",
                  "Memory, plan against measurement", "Attempts", "Checkpoints", "Settings changed between starts"):
        assert title in titles, titles
    cells = page.text["td"]
    at = cells.index("activations")
    assert cells[at:at + 4] == ["activations", "80.00 MiB", "72.00 MiB", "-10.0 %"]
    at = cells.index("run.ini.1")
    assert cells[at:at + 4] == ["run.ini.1", "train.lr", "0.002", "0.001"]
    assert "yes" in cells and "no" in cells, "the older checkpoint is gone"
    assert any("3 steps were done again" in item for item in page.text["li"])
    assert "#2" in page.text["text"], "the second attempt is marked"
    assert page.tags.count("svg") == 7


def test_page_needs_nothing_else(run, demo):
    run("report", demo.path)
    text, page = page_of(demo.path / "report.html")
    assert page.addresses == []
    assert not re.search(r"(?i)https?:|//[a-z]|url\(|@import|<script|<iframe|javascript:", text)
    assert 'name="viewport"' in text and "@media print" in text


def test_hostile_names_are_text(run, tmp_path):
    path = tmp_path / "a<b>&\"c'"
    made = Run(path)
    (path / "run.ini").write_text(f"[run]\nname = \"<script>alert(1)</script> & 'x'\"\n")
    made.rows([step_row(1, phase_seconds={"<img src=x onerror=y>": 0.5}, peak_by_category={"</td><script>": 5})])
    made.status("failed", exit=1, reason=HOSTILE, hint="</p><script>")
    assert run("report", path).rc == 0
    text, page = page_of(path / "report.html")
    assert "script" not in page.tags and "img" not in page.tags
    assert page.text["h1"] == ["<script>alert(1)</script> & 'x'"]
    assert HOSTILE.split("\u001b", maxsplit=1)[0] in page.text["strong"][0]
    assert "\u001b" not in text
    done = run("report", path, "--text", env={"LC_ALL": "C.UTF-8"})
    assert done.rc == 0 and "\u001b" not in done.stdout


def test_names_that_are_no_utf8(run, tools, tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9"
    os.makedirs(path)
    with open(path + b"/metrics.jsonl", "w", encoding="utf-8") as file:
        file.write(json.dumps(step_row(1)) + "\n")
    for options in ([], ["--text"], ["--json"]):
        done = subprocess.run([tools / "plimsoll-report", path, *options], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    with open(path + b"/report.html", "rb") as file:
        assert "caf\ufffd" in file.read().decode("utf-8")


@pytest.mark.parametrize("status, verdict", [
    (dict(state="done", exit=0), "finished: 30 of 60 steps, loss 4.8537 to 2.6694"),
    (dict(state="stopped", exit=75, reason="SIGTERM", hint="start again with the same command to continue"),
     "stopped after 30 of 60 steps (SIGTERM). start again with the same command to continue"),
    (dict(state="failed", exit=93, reason="the loss is nan"), "failed with exit 93 after 30 of 60 steps: the loss is nan"),
    (dict(state="running", host=socket.gethostname(), process=2 ** 30),
     "killed after 30 of 60 steps: status.json says running, but process 1073741824 is gone. start the same command again to continue"),
])
def test_verdicts(run, tmp_path, status, verdict):
    made = Run(tmp_path / "demo").ini().rows(step_row(k) for k in range(1, 31)).status(**status)
    done = run("report", made.path)
    assert done.rc == 0 and done.stdout.splitlines()[-1] == verdict


def test_a_running_job(run, tmp_path):
    made = Run(tmp_path / "demo").ini().rows(step_row(k) for k in range(1, 31)).status("running")
    with open(made.path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step":31,"loss":2.')
    done = run("report", made.path)
    assert re.fullmatch(r"running: 30 of 60 steps, about 15\.0 s left, last row \S+ before this report", done.stdout.splitlines()[-1])
    _, page = page_of(made.path / "report.html")
    assert any(item.startswith("1 line of metrics.jsonl left out (torn by a kill") for item in page.text["li"])
    (made.path / "status.json").unlink()
    assert run("report", made.path).stdout.splitlines()[-1] == "unknown: 30 of 60 steps are there, but no status.json"


def test_what_went_wrong_is_noted(run, tmp_path):
    made = Run(tmp_path / "demo").rows([step_row(1), step_row(2, loss="nan", updated=False), event(2, save_failed="no space left on device"),
                                        step_row(3)]).plan().status("done", exit=0)
    (made.path / "plan.json").write_text('{"schema":1,"ranks":[{"rank":0,"categories":[],"peak_bytes":104857600}]}')
    run("report", made.path)
    _, page = page_of(made.path / "report.html")
    notes = page.text["li"]
    assert "the measured peak is above the plan by 12.00 MiB" in notes
    assert "the loss was no number in 1 step" in notes
    assert "1 step changed no weights (gradients that are no numbers)" in notes
    assert "1 save failed; the last: step 2: no space left on device" in notes
    assert "fault" in page.classes, "a cross where the loss is no number"


def test_a_long_run_is_drawn_with_a_bounded_number_of_points(run, tmp_path):
    made = Run(tmp_path / "long").rows(step_row(k, grad_norm=99.0 if k == 2500 else 0.5) for k in range(1, 8001))
    assert run("report", made.path).rc == 0
    text, page = page_of(made.path / "report.html")
    assert len(text) < 300_000
    assert any("a point of a curve stands for 20 steps" in item for item in page.text["li"])
    longest = max(len(points.split()) for points in re.findall(r'points="([^"]*)"', text))
    assert longest <= 800, "upper and lower edge of a band of 400"
    assert any("to 99)" in tip for tip in page.text["title"]), "a spike of one step is still there"


def test_text_lines_up_and_fits(run, demo):
    for locale, width in (("C.UTF-8", 80), ("C", 80), ("en_US.utf8", 120), ("C", 50)):
        done = run("report", demo.path, "--text", env={"LC_ALL": locale, "COLUMNS": width})
        assert (done.rc, done.stderr) == (0, "")
        assert not (demo.path / "report.html").exists(), "nothing is written without --out"
        lines = done.stdout.splitlines()
        assert lines[0].startswith("demo   llama-5m") and lines[-1] == "finished: 60 of 60 steps, loss 4.8537 to 2.1494"
        block = done.stdout[done.stdout.index("\nloss, nats per token"):done.stdout.index("\nnote:")]
        assert max(map(len, block.splitlines())) <= width
        if locale == "C":
            assert done.stdout.isascii() and "#" in done.stdout
        else:
            assert "█" in done.stdout and re.search("[\u2801-\u28ff]", done.stdout)
        memory = [line for line in lines if re.match(r"(parameters|activations|peak) +\d", line)]
        assert len(memory) == 3 and len({line.index("MiB") for line in memory}) == 1


def test_text_beside_a_page(run, demo, tmp_path):
    assert "loss, nats per token" in run("report", demo.path, "--text", "--out", "x.html").stdout
    assert page_of(tmp_path / "x.html")[1].text["h1"] == ["demo"]


def test_json(run, demo):
    done = run("report", demo.path, "--json")
    report = json.loads(done.stdout)
    assert not (demo.path / "report.html").exists()
    assert report["schema_version"] == 1 and report["run"] == "demo" and report["state"] == "finished" and report["exit"] == 0
    assert (report["first_step"], report["last_step"], report["total_steps"], report["tokens"]) == (1, 60, 60, 30720)
    assert report["loss"]["last"] == pytest.approx(2 + 3 * math.exp(-3)) and report["loss"]["not_finite"] == 0
    assert report["val_loss"] == {"first": 2.9, "last": 2.4, "last_step": 60, "not_finite": 0, "best": 2.4, "best_step": 60}
    assert report["step_seconds"] == pytest.approx(30) and report["phase_seconds"]["forward"] == pytest.approx(12)
    assert report["phase_seconds"]["other"] == pytest.approx(2.4)
    assert report["memory"]["measured_peak_bytes"] == 112 << 20 and report["memory"]["planned_peak_bytes"] == 120 << 20
    assert report["memory"]["measured_by_category"][1] == {"name": "activations", "bytes": 72 << 20}
    assert [(a["attempt"], a["first_step"], a["last_step"], a["repeated"]) for a in report["attempts"]] == [(1, 1, 33, 3), (2, 31, 60, 0)]
    assert report["repeated_steps"] == 3 and report["checkpoints"]["saved"] == 2
    assert [c["on_disk"] for c in report["checkpoints"]["newest"]] == [False, True]


def test_one_step_is_enough(run, tmp_path):
    made = Run(tmp_path / "demo").rows([{"step": 1, "loss": 5.0}])
    assert run("report", made.path).rc == 0
    page_of(made.path / "report.html")
    assert run("report", made.path, "--text").rc == 0
    report = json.loads(run("report", made.path, "--json").stdout)
    assert report["val_loss"] is None and report["memory"]["planned_peak_bytes"] is None and report["total_steps"] is None


def test_only_nan_is_drawn_too(run, tmp_path):
    made = Run(tmp_path / "demo").rows([{"step": 1, "loss": "nan"}, {"step": 2, "loss": "inf"}])
    for options in ([], ["--text"], ["--json"], ["--loss-scale", "log"]):
        assert run("report", made.path, *options).rc == 0
    page_of(made.path / "report.html")


def test_log_scale(run, demo):
    run("report", demo.path, "--loss-scale", "log")
    assert "nats per token, log scale" in (demo.path / "report.html").read_text()
    assert "log scale" in run("report", demo.path, "--text", "--loss-scale", "log").stdout


def refused(run, *args):
    done = run("report", *args)
    assert done.rc == 2 and done.stdout == ""
    return done.message.removeprefix("plimsoll-report: ")


def test_what_is_missing_is_one_line(run, demo, tmp_path):
    assert refused(run, "runs/demp") == "no run 'runs/demp' (no such directory). nearest: runs/demo"
    assert refused(run, "demo") == "no run 'demo' (no such directory). nearest: runs/demo"
    assert refused(run, tmp_path / "runs") == f"'{tmp_path}/runs' is not the directory of a run (neither metrics.jsonl nor status.json in it)"
    fresh = Run(tmp_path / "fresh").status("running")
    assert refused(run, fresh.path) == (f"no metrics yet in '{fresh.path}' (no metrics.jsonl). try again when the run has finished a step")
    assert refused(run, demo.path, "--text", "--json") == "--text and --json both print on stdout. give one of them"


def test_broken_files_are_named(run, demo):
    with open(demo.path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write("step 61 loss 2.0\n" + json.dumps(step_row(61, 2)) + "\n")
    assert refused(run, demo.path).startswith(f"{demo.path}/metrics.jsonl:68: not a JSON object (")
    (demo.path / "plan.json").write_text('{"schema":1}')
    assert refused(run, demo.path) == f"{demo.path}/plan.json: 'ranks' is missing"
    (demo.path / "status.json").write_text("{")
    assert refused(run, demo.path).startswith(f"'{demo.path}/status.json' is not a status file (")


def test_a_page_that_cannot_be_written(run, demo):
    done = run("report", demo.path, "--out", "/nowhere/at/all.html")
    assert done.rc == 1 and done.message == "plimsoll-report: cannot write '/nowhere/at/all.html' (no such file or directory). choose another --out"
