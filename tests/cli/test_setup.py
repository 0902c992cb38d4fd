"""The scripts behind Makefile.local: what they say when something is missing, and that they mend what was interrupted."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

SOURCE = pathlib.Path(os.environ["PLIMSOLL_SOURCE_DIR"])
SCRIPTS = SOURCE / "scripts"
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
TOOLS = ("bash", "env", "dirname", "grep", "sed", "sort", "head", "tail", "cut", "awk", "du", "df", "id", "mkdir", "nproc",
         "uname", "rm", "cat", "ls", "tr", "mv")


def call(command, tmp_path, **environment):
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "BUILD": str(tmp_path / "build"), "PYTHON": PYTHON,
           **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False,
                          stdin=subprocess.DEVNULL)


def path_with(tmp_path, names):
    """A folder of links to the named programs: everything else is not installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(shutil.which(name))
    return str(folder)


def toy_wheel(folder, name, version):
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {f"{name}/__init__.py": "VALUE = 1\n",
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)


@pytest.fixture
def ensure_toy(tmp_path):
    """ensure_toy(VERSION): the virtual environment of one pinned wheel, installed offline."""
    toy_wheel(tmp_path / "wheels", "toy", "1.0")
    toy_wheel(tmp_path / "wheels", "toy", "2.0")

    def ensure(version):
        requirements = tmp_path / "toy.txt"
        requirements.write_text(f"# pinned\ntoy=={version}\n")
        script = f'set -eu; . {SCRIPTS}/common.sh; . {SCRIPTS}/venv.sh; ensure_venv toy {requirements} no-dependencies'
        return call(["bash", "-c", script], tmp_path, WHEELS=str(tmp_path / "wheels"))

    return ensure


def test_elsewhere_than_debian_12_all_missing_needs_are_listed_and_nothing_is_installed(tmp_path):
    release = tmp_path / "os-release"
    release.write_text("ID=fedora\nVERSION_ID=41\n")
    result = call(["bash", str(SCRIPTS / "deps.sh")], tmp_path, PATH=path_with(tmp_path, TOOLS), OS_RELEASE=str(release),
                 PYTHON="python3-is-not-here", LibTorch_ROOT="")
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    for package in ("g++", "cmake", "ninja-build", "ccache", "pkg-config", "git", "libmpich-dev", "mpich", "python3-venv"):
        assert any(line.split()[:2] == ["missing", package] for line in lines), result.stdout
    assert any(line.split()[:2] == ["found", "libfmt-dev"] for line in lines), result.stdout
    assert result.stderr.startswith("plimsoll: 9 of 20 needs are missing (nothing is installed here: this is fedora 41, not "
                                    "debian 12). install these or their like: g++ cmake ninja-build")
    assert not (tmp_path / "build" / "libtorch").exists()


def test_a_libtorch_of_the_users_own_is_taken_and_a_wrong_one_named(tmp_path):
    folder = tmp_path / "mine"
    result = call(["bash", str(SCRIPTS / "deps.sh")], tmp_path, LibTorch_ROOT=str(folder), Arrow_ROOT="/")
    assert result.returncode == 1
    assert result.stderr == (f"plimsoll: LibTorch_ROOT={folder} has no lib/libtorch_cpu.so (wanted: an unpacked libtorch, a "
                             "torch folder or a venv)\n")
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "libtorch_cpu.so").touch()
    result = call(["bash", str(SCRIPTS / "deps.sh")], tmp_path, LibTorch_ROOT=str(folder), Arrow_ROOT="/")
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "build" / "libtorch").exists()


def test_a_folder_of_wheels_that_is_none_is_named(tmp_path):
    result = call(["bash", str(SCRIPTS / "deps.sh")], tmp_path, WHEELS=str(tmp_path / "nowhere"))
    assert result.returncode == 1
    assert f"plimsoll: WHEELS={tmp_path / 'nowhere'} is no folder" in result.stderr


def test_wheels_are_installed_once_and_anew_after_an_interruption_or_for_another_version(tmp_path, ensure_toy):
    """One test, since each virtual environment takes seconds."""
    first = ensure_toy("1.0")
    assert first.returncode == 0, first.stderr
    assert "install   toy: toy==1.0 into" in first.stdout
    again = ensure_toy("1.0")
    assert again.returncode == 0 and "install   toy" not in again.stdout and "found" in again.stdout

    venv = tmp_path / "build" / "toy"
    (venv / "complete.stamp").unlink()
    whole = ensure_toy("1.0")
    assert whole.returncode == 0 and "install   toy" not in whole.stdout

    (venv / "complete.stamp").unlink()
    next(venv.glob("lib/python3*/site-packages/toy/__init__.py")).unlink()
    torn = ensure_toy("1.0")
    assert torn.returncode == 0 and "install   toy: toy==1.0 into" in torn.stdout
    assert "toy/__init__.py is missing" in torn.stderr
    assert next(venv.glob("lib/python3*/site-packages/toy/__init__.py")).exists()

    other = ensure_toy("2.0")
    assert other.returncode == 0 and "install   toy: toy==2.0 into" in other.stdout


def test_too_little_disk_is_said_before_anything_else(tmp_path):
    script = f'set -eu; . {SCRIPTS}/common.sh; need_disk 9000000 "demo"'
    result = call(["bash", "-c", script], tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith(f"plimsoll: demo needs 9000000 GB below {tmp_path / 'build'} (")
    assert "free some space, or set BUILD=DIR on another disk" in result.stderr


def test_help_lists_the_targets_and_the_settings(tmp_path):
    result = call(["make", "-C", str(SOURCE), "--no-print-directory", "-f", "Makefile.local"], tmp_path)
    assert result.returncode == 0
    targets = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ") and not line[2].isupper()]
    assert targets[:9] == ["deps", "build", "demo", "test", "parity", "bench", "install", "format-check", "clean"]
    for setting in ("BUILD", "PRESET", "PREFIX", "JOBS", "TORCH_VERSION", "LibTorch_ROOT", "WHEELS", "WITH_TORCH"):
        assert f"  {setting}" in result.stdout


GTEST_OUTPUT = """[==========] 5 tests from 1 test suite ran. (3 ms total)
[  PASSED  ] 3 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Suite.Needs
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Suite.Breaks
"""


def junit(cases):
    rows = "".join(f'<testcase name="t" status="{status}"><system-out>{output}</system-out></testcase>'
                   for status, output in cases)
    return f"<testsuite>{rows}</testsuite>"


def summarize(tmp_path, stages, files):
    for name, text in files.items():
        (tmp_path / f"{name}.xml").write_text(text)
    (tmp_path / "stages").write_text(stages)
    return call([sys.executable, str(SCRIPTS / "summarize_tests.py"), str(tmp_path)], tmp_path)


def test_the_summary_counts_cases_not_binaries(tmp_path):
    result = summarize(tmp_path, "build-ci 60 ok\ntest-ci 5 FAILED\n", {"test-ci": junit([
        ("fail", GTEST_OUTPUT), ("run", "12 passed, 2 skipped in 3.20s"), ("run", "no closing line"), ("fail", "Segfault")])})
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[1].split() == ["build-ci", "60", "-", "-", "-"]
    assert lines[2].split() == ["test-ci", "5", "16", "2", "3", "FAILED"]
    assert lines[-1] == "16 passed, 2 failed, 3 skipped"


def test_the_summary_fails_when_a_stage_failed_or_no_test_ran(tmp_path):
    good = {"test-ci": junit([("run", "")])}
    assert summarize(tmp_path, "test-ci 5 ok\n", good).returncode == 0
    assert summarize(tmp_path, "build-tsan 5 FAILED\ntest-ci 5 ok\n", good).returncode == 1
    (tmp_path / "test-ci.xml").unlink()
    assert summarize(tmp_path, "deps 5 ok\n", {}).returncode == 1


def test_the_demo_reads_fields_of_the_row_and_not_of_objects_inside_it(tmp_path):
    rows = tmp_path / "metrics.jsonl"
    rows.write_text('{"step":1,"loss":5.5,"peak_by_category":{"loss":4194304},"attempt":1}\n'
                    '{"step":1,"val_loss":2.1,"attempt":1}\n'
                    '{"step":2,"loss":4.5e+00,"communication":{"dp":{"calls":1,"loss":7}},"seconds":1,"attempt":2}\n'
                    '{"step":3,"peak_by_category":{"loss":1},"attempt":2}\n')
    done = call(["bash", "-c", f". {SCRIPTS}/metrics_field.sh; metrics_field loss {rows}"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "1 5.5 1\n2 4.5e+00 2\n"), done.stderr


FIGURES = "gpt2 dp=2 mpi\t2\tfp64\t3\t1.00e-15\t2.00e-14\t3.00e-14\n" \
          "gpt2 dp=2 mpi\t2\tfp64\t1\t2.00e-15\t1.00e-14\t0.00e+00\n" \
          "qwen3 tp=2\t2\tfp32\t1\t1.00e-07\t0.00e+00\t4.00e-07\n" \
          "llama pp=2 mpi bf16=bits\t2\tfp64\t1\t1.00e-15\t0.00e+00\t0.00e+00\n" \
          "llama pp=2 mpi bf16=bits\t2\tbf16\t1\t0.00e+00\t2.00e-16\t0.00e+00\n" \
          "llama\t1\trounding\t1\t4.00e-03\t7.00e-03\t8.00e-03\n"


def test_the_parity_table_holds_the_largest_figures_of_each_row(tmp_path):
    (tmp_path / "figures").write_text(FIGURES)
    doc = tmp_path / "doc.md"
    doc.write_text("above\n<!-- parity matrix: written by make -f Makefile.local parity -->\nold\n<!-- end of the parity matrix -->\nbelow\n")
    done = call([PYTHON, str(SCRIPTS / "parity_table.py"), str(tmp_path / "figures"), str(doc)], tmp_path)
    assert done.returncode == 0, done.stderr
    lines = doc.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("above", "below") and "old" not in lines
    assert lines[4:7] == ["| 2 | `gpt2 dp=2` | 2e-15 | 2e-14 | 3e-14 | – | – | – |",
                          "| 2 | `qwen3 tp=2` | – | – | – | 1e-07 | 0 | 4e-07 |",
                          "| 2 | `llama pp=2` | 1e-15 | 0 | 0 | – | – | – |"]
    assert lines[10:12] == ["| 1 | `llama`, bf16 beside fp32 | 4e-03 | 7e-03 | 8e-03 |",
                            "| 2 | `llama pp=2`, the same bits | 0 | 2e-16 | 0 |"]


def test_the_parity_table_refuses_what_is_none(tmp_path):
    (tmp_path / "figures").write_text("gpt2\t2\tfp16\t3\t1\t2\t3\n")
    (tmp_path / "doc.md").write_text("no marks\n")
    done = call([PYTHON, str(SCRIPTS / "parity_table.py"), str(tmp_path / "figures"), str(tmp_path / "doc.md")], tmp_path)
    assert done.returncode == 1 and "line 1 is no row of figures" in done.stderr
    (tmp_path / "figures").write_text(FIGURES)
    done = call([PYTHON, str(SCRIPTS / "parity_table.py"), str(tmp_path / "figures"), str(tmp_path / "doc.md")], tmp_path)
    assert done.returncode == 1 and "lacks the marks" in done.stderr


def test_the_docs_show_every_row_of_the_parity_matrix():
    rows = [line.split() for line in (SOURCE / "tests/torch/parity/layouts.txt").read_text().splitlines()
            if line and not line.startswith("#")]
    shown = (SOURCE / "docs/parallel_layouts.md").read_text()
    for words in rows:
        layout = " ".join(word for word in words if word != "mpi" and not word.startswith("bf16"))
        times = shown.count(f"| `{layout}` |") + shown.count(f"| `{layout}`, the same bits |")
        expected = 1 + any(word.startswith("bf16") for word in words)
        assert times == expected, f"{layout}: run make -f Makefile.local parity"
    assert len(rows) >= 60
    assert sum("bf16" in words or "bf16=bits" in words for words in rows) >= 12
