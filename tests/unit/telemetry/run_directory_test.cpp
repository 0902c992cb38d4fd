#include "telemetry/run_directory.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text_file.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"
#include "telemetry/host.hpp"

using namespace plimsoll;
using plimsoll::testing::expect_error;
using plimsoll::testing::TempDir;

TEST(RunDirectory, MakesItsFoldersAndCountsAttempts)
{
    const TempDir dir;
    for (int attempt = 1; attempt <= 3; ++attempt)
    {
        RunDirectory run(dir / "runs/demo");
        EXPECT_EQ(run.attempt(), attempt);
        run.begin_attempt();
        EXPECT_TRUE(run.is_locked());
        EXPECT_TRUE(std::filesystem::is_directory(run.checkpoints()));
        EXPECT_TRUE(std::filesystem::is_directory(run.logs()));
        EXPECT_EQ(run.metrics(), (dir / "runs/demo") + "/metrics.jsonl");
    }
}

TEST(RunDirectory, AStartThatNeverBeganLeavesNothingAndCountsNothing)
{
    const TempDir dir;
    {
        const RunDirectory run(dir / "runs/demo");
        EXPECT_TRUE(std::filesystem::exists(run.path()));
    }
    EXPECT_FALSE(std::filesystem::exists(dir / "runs"));
    {
        RunDirectory run(dir / "runs/demo");
        run.begin_attempt();
    }
    {
        const RunDirectory refused(dir / "runs/demo");
    }
    EXPECT_TRUE(std::filesystem::is_directory(dir / "runs/demo/ckpt")) << "made by an attempt that began";
    EXPECT_EQ(RunDirectory(dir / "runs/demo").attempt(), 2);
}

TEST(RunDirectory, WhatAnotherPutThereStays)
{
    const TempDir dir;
    {
        const RunDirectory run(dir / "runs/demo");
        std::ofstream(dir / "runs/demo/notes") << "mine\n";
    }
    EXPECT_TRUE(std::filesystem::exists(dir / "runs/demo/notes"));
}

TEST(RunDirectory, ASecondRunIsRefusedAndNamesTheFirst)
{
    const TempDir dir;
    const RunDirectory run(dir / "demo");
    const std::string message = fmt::format(
        "run directory '{}' is in use (process {} on {}). wait for that run, stop it, or choose another run.name",
        dir / "demo", ::getpid(), host_name());
    expect_error<UsageError>([&] { RunDirectory(dir / "demo"); }, message);
    expect_error<UsageError>([&] { RunDirectory::check(dir / "demo"); }, message);
    EXPECT_EQ(run.attempt(), 1);
}

TEST(RunDirectory, TheLockDiesWithItsProcess)
{
    const TempDir dir;
    const pid_t child = ::fork();
    if (child == 0)
    {
        RunDirectory run(dir / "demo");
        run.begin_attempt();
        ::_exit(run.attempt() == 1 ? 0 : 1);  // no destructor, as after SIGKILL
    }
    int state = 0;
    ::waitpid(child, &state, 0);
    EXPECT_EQ(state, 0);
    EXPECT_EQ(RunDirectory(dir / "demo").attempt(), 2);
}

TEST(RunDirectory, ABrokenLockFileStartsFromTheBeginning)
{
    const TempDir dir;
    std::filesystem::create_directory(dir / "demo");
    std::ofstream(dir / "demo/lock") << "garbage\n";
    EXPECT_EQ(RunDirectory(dir / "demo").attempt(), 1);
}

TEST(RunDirectory, AFolderThatCannotBeMadeIsNamed)
{
    const TempDir dir;
    std::ofstream(dir / "demo") << "a file";
    expect_error<IoError>([&] { RunDirectory(dir / "demo"); },
                          "cannot write to '" + (dir / "demo") + "' ('" + (dir / "demo") +
                              "': not a directory). choose another run.dir");
}

TEST(RunDirectory, SnapshotsAreKeptWhenValuesChange)
{
    const TempDir dir;
    RunDirectory run(dir / "demo");
    const std::string first = "[train]\nlr = 0.1\n";
    const std::string second = "[train]\nlr = 0.2\n";
    EXPECT_TRUE(run.changes(first).empty());
    run.write_snapshot(first);
    run.write_snapshot(first);
    EXPECT_FALSE(std::filesystem::exists(run.run_file() + ".1")) << "the same values";
    ASSERT_EQ(run.changes(second).size(), 1u);
    EXPECT_EQ(run.changes(second)[0].key, "train.lr");
    run.write_snapshot(second);
    run.write_snapshot(first);
    EXPECT_EQ(load_text(run.run_file(), "run file"), first);
    EXPECT_EQ(load_text(run.run_file() + ".1", "run file"), first);
    EXPECT_EQ(load_text(run.run_file() + ".2", "run file"), second);
}
