"""How a job of several MPI ranks ends: one message, one exit code, in time, whatever its ranks do."""

import os
import re
import subprocess
import time

import pytest

PROBE = os.environ["PLIMSOLL_JOB_PROBE"]
MPIEXEC = os.environ["PLIMSOLL_MPIEXEC"]
WATCHDOG_S = 3
AFTER_WORK = r"step 7, after all_reduce of 'world' #1"


class End:
    def __init__(self, way, ranks=2, launcher_options=(), arguments=()):
        begin = time.monotonic()
        done = subprocess.run([MPIEXEC, *launcher_options, "-n", str(ranks), PROBE, way, *arguments], capture_output=True,
                              text=True, timeout=60)
        self.seconds = time.monotonic() - begin
        self.rc = done.returncode
        self.stdout = done.stdout
        self.stderr = done.stderr
        self.lines = [line for line in done.stderr.splitlines() if line.startswith("mpi_job_probe: ")]


def test_one_code_for_all_and_silence_when_all_is_well():
    for way, code in (("done", 0), ("interrupted", 75)):
        end = End(way, ranks=4)
        assert (end.rc, end.stdout, end.stderr) == (code, "", "")


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_throws_ends_the_job_with_its_code_and_one_message(ranks):
    end = End("one-throws", ranks)
    assert end.seconds < 10
    assert end.rc == 93
    assert end.stderr == "mpi_job_probe: rank 1 (step 7, after all_reduce of 'world' #1): loss is nan\n"


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_throws_while_others_use_its_buffers(ranks):
    end = End("one-throws-in-the-middle", ranks)
    assert end.seconds < 10
    assert end.rc == 93
    assert end.stderr == "mpi_job_probe: rank 1 (step 7, in all_reduce of 'world' #2): loss is nan\n"


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_send_that_nobody_received_is_not_received_later(ranks):
    """rank 0 comes to the operation when the buffers of the others are gone."""
    end = End("one-throws-and-one-is-late", ranks)
    assert end.seconds < 10
    assert end.rc == 93
    assert end.stderr == "mpi_job_probe: rank 1 (step 7, in all_reduce of 'world' #2): loss is nan\n"


def test_a_rank_that_throws_when_the_others_have_ended():
    end = End("one-throws-at-the-end", ranks=4)
    assert end.rc == 1
    assert end.stderr == f"mpi_job_probe: rank 1 ({AFTER_WORK}): disk full\n"


def test_what_all_say_is_printed_once_on_one_line():
    end = End("all-throw-alike", ranks=4)
    assert end.rc == 2
    assert end.stderr == "mpi_job_probe: 20 heads cannot be split over tp 8\n"


def test_what_they_say_differently_is_one_message_too():
    end = End("all-throw")
    assert end.rc == 1
    assert end.stderr == (f"mpi_job_probe: rank 0 ({AFTER_WORK}): disk 0 full; "
                          f"rank 1 ({AFTER_WORK}): disk 1 full\n")


def test_a_hang_ends_within_the_watchdog_and_names_who_last_did_what():
    end = End("one-hangs")
    assert WATCHDOG_S <= end.seconds < WATCHDOG_S + 10
    assert end.rc == 1
    assert len(end.lines) == 1, end.stderr
    assert "rank 0 waits in barrier of 'world' #2 and no rank of the group made progress for 3." in end.lines[0]
    assert f"(rank 1: {AFTER_WORK})" in end.lines[0]


def test_a_hang_is_noticed_by_those_that_have_ended():
    end = End("one-hangs-while-others-end", ranks=4)
    assert WATCHDOG_S <= end.seconds < WATCHDOG_S + 10
    assert end.rc == 1
    assert len(end.lines) == 1, end.stderr
    assert f"rank 1: {AFTER_WORK}" in end.lines[0]


def test_ranks_that_wait_for_each_other_end():
    end = End("waits-cross")
    assert WATCHDOG_S <= end.seconds < WATCHDOG_S + 10
    assert end.rc == 1
    assert len(end.lines) == 1, end.stderr
    assert "in recv from 0 of 'world' #1" in end.lines[0]
    assert end.stdout == ""


@pytest.mark.parametrize("way", ["one-is-killed", "one-is-killed-while-others-end"])
@pytest.mark.parametrize("launcher_options", [(), ("-disable-auto-cleanup",)])
def test_after_a_kill_the_job_is_over_and_the_files_say_what_the_rank_did(tmp_path, way, launcher_options):
    end = End(way, 2, launcher_options, [str(tmp_path)])
    assert end.seconds < 10
    assert end.rc != 0
    if end.lines:  # unless the launcher was faster
        assert re.fullmatch(rf"mpi_job_probe: rank 0.*: rank 1 is dead \(process \d+ on '.*' is gone; {AFTER_WORK}\) while .*",
                            end.lines[0]), end.stderr
    status = (tmp_path / "rank_00001.status").read_bytes()
    assert status[:8] == b"PLIMRANK"
    assert int.from_bytes(status[16:24], "little") == 1, "running"
    assert int.from_bytes(status[48:56], "little") == 7, "step"
    assert status[104:168].rstrip(b"\0").split(b"\0")[0] == b"world"
    assert status[232:328].split(b"\0")[0] == b"all_reduce"


def test_a_kill_in_the_middle_of_shared_memory_is_noticed_and_leaves_nothing():
    end = End("one-is-killed-in-the-middle", 2, ("-disable-auto-cleanup",))
    assert end.seconds < 10
    assert end.rc != 0
    if end.lines:  # unless the launcher was faster
        assert re.fullmatch(r"mpi_job_probe: rank 0.*: rank 1 is dead \(process \d+ on '.*' is gone; .*\) while rank 0 waits in "
                            r"all_reduce of 'world' #2.*", end.lines[0]), end.stderr
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("plimsoll-")]


def test_ranks_that_disagree_are_told_so():
    end = End("ranks-disagree")
    assert end.rc == 1
    assert len(end.lines) == 1, end.stderr
    assert ("ranks disagree about operation #2 of 'world': member 0 calls all_reduce of 200000 f32 (sum), "
            "member 1 all_reduce of 100000 f32 (sum)") in end.lines[0]


def test_where_memory_cannot_be_shared_messages_do_and_it_is_said_once():
    end = End("one-cannot-share-memory")
    assert end.rc == 0, end.stderr
    assert re.fullmatch(r"warning    ranks of this node sum large buffers through messages, which takes about twice as long "
                        r"\(.*Too many open files\)\. .*\n", end.stderr), end.stderr


def test_a_rank_that_leaves_early_is_named():
    end = End("one-leaves")
    assert end.seconds < 10
    assert end.rc == 1
    assert len(end.lines) == 1, end.stderr
    assert f"rank 1 ended its work ({AFTER_WORK}) while rank 0 waits in barrier of 'world' #2" in end.lines[0]


def test_a_forgotten_wait_is_an_error():
    end = End("one-forgets-to-wait")
    assert end.rc == 1
    assert "rank 1 did not wait for its all_reduce of 'world' #2" in end.stderr


def test_without_a_launcher_it_runs_alone():
    done = subprocess.run([PROBE, "one-throws-at-the-end"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run([PROBE, "all-throw"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "mpi_job_probe: disk 0 full\n")


def test_a_launcher_of_another_kind_is_refused():
    environment = dict(os.environ, SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="0")
    done = subprocess.run([PROBE, "done"], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith("mpi_job_probe: srun started 4 tasks, but MPI sees 1 rank"), done.stderr


def test_help_and_usage_errors_are_said_once():
    for arguments, code, stream in ((["--version"], 0, "stdout"), (["--help"], 0, "stdout"), (["--nonsense"], 2, "stderr")):
        done = subprocess.run([MPIEXEC, "-n", "3", PROBE, *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == code
        assert getattr(done, stream).count("mpi_job_probe") >= 1
        first = getattr(done, stream).splitlines()[0]
        assert getattr(done, stream).count(first) == 1, getattr(done, stream)


def test_the_library_is_named():
    end = End("facts")
    assert re.fullmatch(r"\S.* \d+\.\d+(\.\d+)?, 2 ranks\n", end.stdout), end.stdout
