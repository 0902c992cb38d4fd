"""plimsoll-bench allreduce as a user runs it. No absolute time is asserted: the machine may be busy."""

import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import tool_environment

QUICK = ["--min-time", "0s", "--iters", "3", "--warmup-iters", "1"]
HEAD = ["size", "count", "iter", "p50", "us", "p99", "us", "max", "us", "algbw", "GB/s", "busbw", "GB/s", "#wrong"]


def rows_of(text):
    return [line.split() for line in text.splitlines() if re.match(r" +\d", line)]


def test_help_and_links(run, tools):
    done = run("bench", "allreduce", "--help")
    assert done.rc == 0 and "mpiexec -n 2 plimsoll-bench allreduce --sizes 1K:64M" in done.stdout
    libraries = subprocess.run(["ldd", tools / "plimsoll-bench"], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"torch|libcuda|hdf5|not found", libraries)


def test_table(run):
    done = run("bench", "allreduce", "--ranks", 2, "--sizes", "1K:8K", *QUICK)
    assert done.rc == 0
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"# 2 ranks on 1 node: (\S+|rank 0 .*)", lines[0])
    assert lines[1] == "# threads of one process   fp32 sum, in place, isolated (a barrier before each iteration, outside its time)"
    assert lines[2] == ("# time of an iteration: its slowest rank's; 1 warm-up, at least 3 iterations and 0 s   "
                        "every element of every iteration verified")
    assert lines[3].split() == HEAD
    assert len({len(line) for line in lines[3:-1]}) == 1, "the table lines up"
    rows = rows_of(done.stdout)
    assert [row[:3] for row in rows] == [["1024", "256", "3"], ["2048", "512", "3"], ["4096", "1024", "3"], ["8192", "2048", "3"]]
    for row in rows:
        p50, p99, largest, algbw, busbw, wrong = row[3:]
        assert p99 == "-", "three iterations have no 99th percentile"
        assert float(largest) >= float(p50) > 0
        assert busbw == algbw, "two ranks: the factor is 1"
        assert wrong == "0"
    assert re.fullmatch(r"slowest rank: [01] on \S+ in \d+ % of iterations \((even|uneven: look at this rank)\)     verdict: ok", lines[-1])


@pytest.mark.parametrize("arguments", [["-b", "8"], ["-e", "1G"], ["-f", "2"], ["--minbytes", "8"], ["--maxbytes", "1G"],
                                       ["--stepfactor", "2"]])
def test_names_of_nccl_tests_lead_to_sizes(run, arguments):
    done = run("bench", "allreduce", "--ranks", 2, *arguments)
    assert done.rc == 2 and done.message.endswith("(another toolkit's name). use --sizes FIRST:LAST:FACTOR")


def test_p99_from_100_iterations_on(run):
    rows = rows_of(run("bench", "allreduce", "--ranks", 1, "--sizes", "64", "--min-time", "0s").stdout)
    assert len(rows) == 1 and rows[0][2] == "100"
    assert float(rows[0][3]) <= float(rows[0][4]) <= float(rows[0][5])
    assert rows[0][7] == "-", "one rank moves nothing"


def test_min_time_adds_iterations(run):
    report = json.loads(run("bench", "allreduce", "--ranks", 1, "--sizes", "64", "--min-time", "20ms", "--iters", 1, "--json").stdout)
    assert report["results"][0]["iterations"] > 100


def test_json(run):
    done = run("bench", "allreduce", "--ranks", 4, "--sizes", "1K:4K:4", "--dtype", "fp64", "--json", *QUICK)
    assert done.rc == 0
    report = json.loads(done.stdout)
    assert report["schema_version"] == 1 and report["operation"] == "all_reduce" and report["reduction"] == "sum"
    assert (report["dtype"], report["back_end"], report["cadence"], report["in_place"]) == ("fp64", "threads", "isolated", True)
    assert report["bus_factor"] == 1.5 and report["verdict"] == "ok" and report["warmup"] == 1
    assert len(report["ranks"]) == 4 and all(rank["cores"] >= 1 and rank["host"] for rank in report["ranks"])
    assert [(r["bytes"], r["count"], r["iterations"], r["wrong"], r["verified_iterations"]) for r in report["results"]] == [
        (1024, 128, 3, 0, 4), (4096, 512, 3, 0, 4)]
    for result in report["results"]:
        seconds = result["seconds"]
        assert seconds["p99"] is None and seconds["min"] <= seconds["p50"] <= seconds["max"]
        assert result["algorithm_bandwidth"] == pytest.approx(result["bytes"] / seconds["p50"])
        assert result["bus_bandwidth"] == pytest.approx(1.5 * result["algorithm_bandwidth"])
        assert 0 <= result["slowest"]["rank"] < 4 and 0.25 <= result["slowest"]["share"] <= 1
    assert not set(os.environ) & set(report), "the environment stays here"


def test_sizes_that_are_no_multiple_of_an_element(run):
    report = json.loads(run("bench", "allreduce", "--ranks", 3, "--sizes", "10:30:1.5", "--json", *QUICK).stdout)
    assert [r["bytes"] for r in report["results"]] == [8, 12, 20]


def test_without_verification(run):
    done = run("bench", "allreduce", "--ranks", 2, "--sizes", "1K", "--no-check", *QUICK)
    assert done.rc == 0 and rows_of(done.stdout)[0][-1] == "-" and done.stdout.endswith("verdict: ok (not verified)\n")
    report = json.loads(run("bench", "allreduce", "--ranks", 2, "--sizes", "1K", "--no-check", "--json", *QUICK).stdout)
    assert report["results"][0]["wrong"] is None


def test_too_many_ranks_for_the_cores_is_a_warning(run):
    ranks = len(os.sched_getaffinity(0)) + 1
    done = run("bench", "allreduce", "--ranks", ranks, "--sizes", "64", *QUICK)
    assert done.rc == 0
    text = rf"{ranks} ranks share \d+ cores? on \S+: times say more about the scheduler than about the links"
    assert done.stderr == "" and re.fullmatch("# warning: " + text, done.stdout.splitlines()[3]), "among the table's own remarks"
    done = run("bench", "allreduce", "--ranks", ranks, "--sizes", "64", "--json", *QUICK)
    assert re.fullmatch("warning    " + text, done.message) and json.loads(done.stdout)


@pytest.mark.parametrize("args, message", [
    (["--sizes", "1M:1K"], "--sizes: '1M:1K' ends below its begin (1024 < 1048576 bytes)"),
    (["--sizes", "1K:1M:0.5"], "--sizes: '1K:1M:0.5' has the factor 0.5 (at least 1.01)"),
    (["--sizes", "big"], "--sizes: 'big' is not a size (such as 8, 64K, 1M or 2G; these are powers of two)"),
    (["--sizes", "7"], "size 7 is no whole number of elements (4 bytes of fp32). nearest: 4 or 8"),
    (["--sizes", "2:1K"], "--sizes begins below one element (2 < 4 bytes of fp32)"),
    (["--sizes", "4:1K", "--dtype", "fp64"], "--sizes begins below one element (4 < 8 bytes of fp64)"),
    (["--iters", "0"], "--iters: 0 is too small (at least 1)"),
    (["--min-time", "2"], "--min-time: '2' has no unit (durations need one). write 2s, 2min or 2h"),
])
def test_what_cannot_be_measured(run, args, message):
    done = run("bench", "allreduce", "--ranks", 2, *args)
    assert done.rc == 2 and done.stdout == "" and done.message == f"plimsoll-bench: {message}"


def test_sizes_beyond_the_memory(run):
    done = run("bench", "allreduce", "--ranks", 2, "--sizes", "1024G")
    assert done.rc == 2 and done.stdout == ""
    assert re.fullmatch(r"plimsoll-bench: size 1\.00 TiB needs 4\.00 TiB for 2 ranks on \S+ \(it has \S+ [GT]iB\)\. end --sizes earlier", done.message)


def test_one_rank_is_a_mistake_unless_asked_for(run):
    done = run("bench", "allreduce", env={"SLURM_STEP_NUM_TASKS": None, "PMI_SIZE": None})
    assert done.rc == 2
    assert done.message == ("plimsoll-bench: one rank has nothing to reduce (no launcher started several). "
                            "start it with mpiexec -n 2, or say --ranks 2 for threads")


@pytest.fixture
def mpiexec(tools):
    libraries = subprocess.run(["ldd", tools / "plimsoll-bench"], capture_output=True, text=True, check=True).stdout
    if "libmpi" not in libraries or not shutil.which("mpiexec"):
        pytest.skip("this build has no MPI, or there is no mpiexec")

    def call(ranks, *args):
        return subprocess.run(["mpiexec", "-n", str(ranks), str(tools / "plimsoll-bench"), *map(str, args)], capture_output=True, text=True,
                              timeout=120, check=False, env=tool_environment({"HYDRA_LAUNCHER": "fork"}))

    return call


def test_over_mpi(mpiexec):
    done = mpiexec(2, "allreduce", "--sizes", "1K:64K:8", *QUICK)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("# 2 ranks on 1 node: ") and lines[1].startswith("# mpi (launched by ")
    assert [row[0] for row in rows_of(done.stdout)] == ["1024", "8192", "65536"]
    assert lines[-1].endswith("verdict: ok") and len(lines) == 8
    report = json.loads(mpiexec(3, "allreduce", "--sizes", "4K", "--json", *QUICK).stdout)
    assert report["back_end"] == "mpi" and len(report["ranks"]) == 3 and report["bus_factor"] == pytest.approx(4 / 3)
    assert report["results"][0]["wrong"] == 0 and report["results"][0]["verified_iterations"] == 4


def test_threads_and_a_launcher_exclude_each_other(mpiexec):
    done = mpiexec(2, "allreduce", "--ranks", 2)
    assert done.returncode != 0 and done.stdout == ""
    assert "--ranks 2 asks for threads, but" in done.stderr and "started 2 processes. leave out one of them" in done.stderr
    assert done.stderr.count("plimsoll-bench:") == 1, "one message for the job"


def test_beside_the_mpi_library(mpiexec):
    done = mpiexec(2, "allreduce", "--peer", "mpi", "--sizes", "1K:256K:16", *QUICK)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"# mpi: MPI_Allreduce of \S.* on the same buffers, in turns; x: how many times as long it takes", lines[3])
    rows = rows_of(done.stdout)
    assert [row[:2] for row in rows] == [["1024", "3"], ["16384", "3"], ["262144", "3"]]
    assert len({len(line) for line in lines[4:-1]}) == 1, "the table lines up"
    for row in rows:
        ours, ours_min, _, theirs, theirs_min, _, p50_factor, min_factor = map(float, row[2:10])
        assert ours >= ours_min > 0 and theirs >= theirs_min > 0 and row[10] == "0"
        assert p50_factor == pytest.approx(theirs / ours, rel=0.02, abs=0.01)
        assert min_factor == pytest.approx(theirs_min / ours_min, rel=0.02, abs=0.01)
    report = json.loads(mpiexec(2, "allreduce", "--peer", "mpi", "--sizes", "4K", "--json", *QUICK).stdout)
    result = report["results"][0]
    assert report["peer"] and result["peer_factor"]["min"] == pytest.approx(result["peer_seconds"]["min"] / result["seconds"]["min"])


def test_threads_have_no_mpi_beside_them(run):
    done = run("bench", "allreduce", "--ranks", 2, "--peer", "mpi")
    assert done.rc == 2
    assert done.message == ("plimsoll-bench: --peer mpi compares with MPI, but --ranks 2 asks for threads. "
                            "start it with mpiexec -n 2 instead")
