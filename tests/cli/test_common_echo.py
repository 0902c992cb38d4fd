"""What run_tool() promises for every tool, seen through plimsoll-echo: a tool with the whole run file and nothing behind it."""

import os
import re

import pytest


@pytest.fixture
def echo(run):
    return lambda *args, **kwargs: run("echo", *args, **kwargs)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_help_lists_commands(echo):
    done = echo("--help")
    assert (done.rc, done.stderr) == (0, "")
    assert done.stdout.startswith("plimsoll-echo: shows what a tool makes of its options\nusage: plimsoll-echo COMMAND ...\n")
    assert "  inspect                       looks at a directory\n" in done.stdout


def test_help_of_a_command_is_grouped_with_units_defaults_and_examples(echo):
    done = echo("show", "--help")
    assert done.rc == 0
    for text in ("usage: plimsoll-echo show [--config FILE]... [options]\n", "\n[layout]\n",
                 "  --micro-batch N               batch of one forward pass on one data-parallel rank [sequences;\n",
                 "  --precision fp64|fp32|bf16    of parameters and activations; bf16 is updated and summed up in fp32\n",
                 "\nexamples\n  plimsoll-echo show --config demo.ini --tp 1\n"):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "[lora]" not in done.stdout, "what is not built is not offered"


def test_help_marks_what_is_required(echo):
    assert "  --lr X                        peak learning rate [required]\n" in echo("train", "--help").stdout
    assert "  --lr X                        peak learning rate\n" in echo("show", "--help").stdout


def test_help_wins_over_wrong_options(echo):
    assert echo("show", "--tp", "two", "--help").rc == 0
    assert echo("show", "-h").rc == 0


def test_version_names_the_build(echo):
    for args in (["--version"], ["show", "--version"]):
        done = echo(*args)
        assert (done.rc, done.stderr) == (0, "")
        assert re.fullmatch(r"plimsoll-echo 0\.1\.0 \(build [0-9a-z.-]+\)\n", done.stdout)


def test_print_config_shows_every_source(echo, tmp_path):
    write(tmp_path / "a.ini", "[layout]\nglobal-batch = 32 # all\n[train]\nlr = 6e-4\nmin-lr = 0.1x\n")
    done = echo("show", "--print-config", "--config", "a.ini", "--micro-batch", "4", env={"PLIMSOLL_RUN_SEED": 5})
    assert (done.rc, done.stderr) == (0, "")
    rows = {}
    section = ""
    for line in done.stdout.splitlines():
        section = line[1:-1] if line.startswith("[") else section
        found = re.fullmatch(r"(\S+) = (.*?)\s+# (.*)", line)
        if found:
            rows[f"{section}.{found[1]}"] = (found[2], found[3])
    assert rows["layout.global-batch"] == ("32", "a.ini:2")
    assert rows["layout.micro-batch"] == ("4", "--micro-batch")
    assert rows["run.seed"] == ("5", "PLIMSOLL_RUN_SEED")
    assert rows["train.lr"] == ("0.0006", "a.ini:4")
    assert rows["train.clip"] == ("1", "default")
    assert rows["run.dir"] == (str(tmp_path / "runs/run"), "from run.name")


def test_print_config_reads_back(echo, tmp_path):
    write(tmp_path / "a.ini", "[run]\nname = x y\n[layout]\nglobal-batch = 32\n[eval]\nevery = 3\n")
    first = echo("show", "--config", "a.ini", "--print-config")
    assert first.rc == 0, first.stderr
    write(tmp_path / "b.ini", first.stdout)
    assert echo("show", "--config", "b.ini").stdout == echo("show", "--config", "a.ini").stdout


def test_print_config_needs_no_required_values(echo):
    assert echo("train", "--print-config").rc == 0
    assert echo("inspect", "--out", "x").rc == 2


@pytest.mark.parametrize("kind, code, message", [
    ("usage", 2, "plimsoll-echo: this is wrong (because). do that"),
    ("io", 1, "plimsoll-echo: while writing x.h5: no space left on device"),
    ("numeric", 93, "plimsoll-echo: loss is nan at step 7"),
    ("interrupted", 75, "plimsoll-echo: stopped at step 7. start it again to continue"),
    ("memory", 1, "plimsoll-echo: out of memory (the system refused an allocation). close other programs or use a smaller "
                  "batch"),
    ("standard", 1, "plimsoll-echo: unexpected error (index 7). this is a fault of plimsoll-echo, please report it"),
    ("other", 1, "plimsoll-echo: unexpected error of unknown type. this is a fault of plimsoll-echo, please report it"),
])
def test_errors_are_one_line_and_one_exit_code(echo, kind, code, message):
    done = echo("show", "--fail", kind)
    assert (done.rc, done.message) == (code, message)


def test_an_internal_error_names_the_place(echo):
    done = echo("show", "--fail", "internal")
    assert done.rc == 1
    assert re.fullmatch(r"plimsoll-echo: precondition failed: kind\.empty\(\) \(.*echo_tool\.cpp:\d+\)", done.message)


@pytest.mark.parametrize("args, message", [
    ([], "no command given (commands: show train prepare inspect). see --help"),
    (["shwo"], "unknown command 'shwo' (commands: show train prepare inspect). nearest: show"),
    (["show", "extra"], "unexpected argument 'extra' (an option without its dashes?). see --help"),
    (["inspect", "--out", "x"], "DIR is missing (a checkpoint or a directory with latest). see --help"),
    (["inspect", "a", "b", "--out", "x"], "unexpected argument 'b' (an option without its dashes?). see --help"),
    (["inspect", "a"], "--out is missing (where to write)"),
    (["inspect", "a", "--config", "x.ini"], "unknown option '--config'. see --help"),
    (["show", "--micro-bacth", "4"], "unknown option '--micro-bacth'. nearest: --micro-batch"),
    (["show", "--tensor-model-parallel-size", "2"],
     "unknown option '--tensor-model-parallel-size' (another toolkit's name). use --tp"),
    (["show", "--train-iters", "2"], "unknown option '--train-iters' (another toolkit's name). use --steps"),
    (["show", "--cp", "2"], "cp 2 is not available in this version (only cp 1). use a shorter seq-len"),
    (["show", "--budget", "80"],
     "--budget: '80' has no unit (bytes need one). write 80GiB, 80MiB or 80GB"),
    (["show", "--tp"], "--tp needs a value. see --help"),
    (["show", "--config", "no.ini"], "cannot read run file 'no.ini' (no such file or directory)"),
    (["show", "--config", "."], "cannot read run file '.' (is a directory)"),
    (["train", "--lr", "1", "--seq-len", "8"],
     "model.name is missing (config.json). set name in [model] of the run file, or --model"),
    (["train", "--lr", "1", "--seq-len", "8", "--model", "gpt2"],
     "the run has no length. set one of tokens, steps, epochs in [train]; there is no training data. set shards in "
     "[data.NAME]"),
])
def test_wrong_usage_is_one_line_and_exit_2(echo, args, message):
    done = echo(*args)
    assert (done.rc, done.stdout, done.message) == (2, "", "plimsoll-echo: " + message)


@pytest.mark.parametrize("text, message", [
    ("[layuot]\ntp = 1\n", "a.ini:2: unknown section [layuot]. nearest: [layout]"),
    ("[train]\nstesp = 1\n", "a.ini:2: unknown key 'stesp' in [train]. nearest: steps"),
    ("[train]\ntp = 1\n", "a.ini:2: unknown key 'tp' in [train]. it belongs to [layout]"),
    ("[train]\ntrain_iters = 1\n",
     "a.ini:2: unknown key 'train_iters' in [train] (another toolkit's name). use 'steps' in [train]"),
    ("[train]\nsteps = 1\nsteps = 2\n", "a.ini:3: key 'steps' in [train] stands twice (first in line 2). keep one"),
    ("[train]\nsteps = many\n",
     "a.ini:2: steps: 'many' is not a whole number (a count such as 50, 500K or 1.5B is wanted)"),
    ("[layout]\ncp = 2\n", "a.ini:2: cp 2 is not available in this version (only cp 1). use a shorter seq-len"),
    ("[data.x]\nshards = $NO_SUCH_VARIABLE/*.h5\n",
     "a.ini:2: variable 'NO_SUCH_VARIABLE' is not set. export it, or put the text into single quotes"),
    ("include = b.ini\n", "a.ini:1: cannot read run file 'b.ini' (no such file or directory)"),
])
def test_a_wrong_run_file_is_named_with_its_line(echo, tmp_path, text, message):
    write(tmp_path / "a.ini", text)
    done = echo("show", "--config", "a.ini")
    assert (done.rc, done.stdout, done.message) == (2, "", "plimsoll-echo: " + message)


def test_an_unreadable_run_file_is_named(echo, tmp_path):
    path = write(tmp_path / "a.ini", "[run]\n")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user reads every file (root)")
    assert echo("show", "--config", "a.ini").message == "plimsoll-echo: cannot read run file 'a.ini' (permission denied)"


def test_a_mistyped_variable_is_found(echo):
    done = echo("show", env={"PLIMSOLL_LAYOUT_MICROBATCH": "4"})
    assert (done.rc, done.message) == (2, "plimsoll-echo: environment variable PLIMSOLL_LAYOUT_MICROBATCH names no key of a run "
                                          "file. nearest: PLIMSOLL_LAYOUT_MICRO_BATCH")


def test_paths_are_relative_to_whoever_names_them(echo, tmp_path):
    write(tmp_path / "jobs/data/b.h5", "")
    write(tmp_path / "jobs/data/a.h5", "")
    write(tmp_path / "jobs/a.ini", "[data.x]\nshards = data/*.h5\n")
    write(tmp_path / "work/t1.txt", "")
    write(tmp_path / "work/t2.txt", "")
    done = echo("show", "--config", "../jobs/a.ini", "--input", "*.txt", cwd=tmp_path / "work")
    assert done.rc == 0, done.stderr
    assert f"input {tmp_path}/work/t1.txt\ninput {tmp_path}/work/t2.txt\n" in done.stdout
    assert f"shards = {tmp_path}/jobs/data/a.h5\n    {tmp_path}/jobs/data/b.h5\n" in done.stdout


def test_a_tool_that_makes_the_data_reads_the_same_file(echo, tmp_path):
    write(tmp_path / "a.ini", "[model]\nname = later.json\n[data.x]\nshards = later/*.h5\n")
    assert echo("prepare", "--config", "a.ini").rc == 0
    done = echo("show", "--config", "a.ini", "--model", "gpt2")
    assert (done.rc, done.message) == (2, f"plimsoll-echo: a.ini:4: shards: no file matches '{tmp_path}/later/*.h5'")


def test_a_full_standard_output_is_an_error(tools):
    import subprocess

    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([tools / "plimsoll-echo", "show"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "plimsoll-echo: cannot write to standard output (no space left on device)\n")
