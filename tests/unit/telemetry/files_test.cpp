#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/text_file.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"
#include "telemetry/metrics.hpp"
#include "telemetry/status_file.hpp"

using namespace plimsoll;
using plimsoll::testing::expect_error;
using plimsoll::testing::TempDir;

TEST(StatusFile, ReadsBack)
{
    const TempDir dir;
    RunStatus status;
    status.state = RunState::stopped;
    status.exit = 75;
    status.reason = "SIGTERM \xff";
    status.step = 40;
    status.hint = "start it again to continue";
    status.attempt = 2;
    write_status(dir / "status.json", status);
    const RunStatus back = read_status(dir / "status.json");
    EXPECT_EQ(back.state, RunState::stopped);
    EXPECT_EQ(back.exit, 75);
    EXPECT_EQ(back.step, 40);
    EXPECT_EQ(back.hint, status.hint);
    EXPECT_EQ(back.attempt, 2);
    const auto json = nlohmann::json::parse(load_text(dir / "status.json", "status file"));
    EXPECT_EQ(json.at("schema"), 1);
    EXPECT_EQ(json.at("state"), "stopped");
    EXPECT_TRUE(json.contains("host") && json.contains("process") && json.contains("time"));
}

TEST(StatusFile, RunningHasNoExitYet)
{
    const TempDir dir;
    write_status(dir / "status.json", RunStatus());
    EXPECT_TRUE(nlohmann::json::parse(load_text(dir / "status.json", "status file")).at("exit").is_null());
    EXPECT_EQ(read_status(dir / "status.json").exit, -1);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1) << "no temporary file is left";
}

TEST(StatusFile, ExitCodesHaveStates)
{
    EXPECT_EQ(state_of(ExitCode::done), RunState::done);
    EXPECT_EQ(state_of(ExitCode::interrupted), RunState::stopped);
    EXPECT_EQ(state_of(ExitCode::fatal), RunState::failed);
    EXPECT_EQ(state_of(ExitCode::usage), RunState::failed);
}

TEST(StatusFile, ProgressReplacesItAndAFailureIsPassedOver)
{
    const TempDir dir;
    RunStatus status;
    write_status(dir / "status.json", status);
    status.step = 20;
    write_progress(dir / "status.json", status);
    EXPECT_EQ(read_status(dir / "status.json").step, 20);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / "."), std::filesystem::directory_iterator()), 1);
    write_progress(dir / "missing/status.json", status);
}

TEST(StatusFile, HintsAreSplitFromReasons)
{
    using Parts = std::pair<std::string, std::string>;
    EXPECT_EQ(split_hint("x is 3 (not 4). try 4"), Parts("x is 3 (not 4)", "try 4"));
    EXPECT_EQ(split_hint("no full stop"), Parts("no full stop", ""));
    EXPECT_EQ(split_hint("lr 0.5 is large. try --lr 0.1. or less"), Parts("lr 0.5 is large", "try --lr 0.1. or less"));
    EXPECT_EQ(split_hint("cannot read '/a. b/c' (e. g. gone). give another"),
              Parts("cannot read '/a. b/c' (e. g. gone)", "give another"));
    EXPECT_EQ(split_hint("the model's width is odd. nearest: 4"), Parts("the model's width is odd", "nearest: 4"));
    EXPECT_EQ(split_hint("an 'open quote. here"), Parts("an 'open quote", "here"));
    EXPECT_EQ(split_hint(""), Parts("", ""));
}

TEST(StatusFile, BrokenOnesAreRefused)
{
    const TempDir dir;
    const std::string path = dir / "status.json";
    for (const char* text : {"", "{", "[]", "{\"state\": \"done\"}", "{\"state\": 3}", "null"})
    {
        std::ofstream(path) << text;
        EXPECT_THROW(read_status(path), FormatError) << text;
    }
    std::ofstream(path) << R"({"state": "odd"})";
    expect_error<FormatError>([&] { read_status(path); }, "'" + path + "' has the unknown state 'odd'");
    expect_error<ConfigError>([&] { read_status(dir / "no"); },
                              "cannot read status file '" + (dir / "no") + "' (no such file or directory)");
    expect_error<IoError>([&] { write_status(dir / "no/status.json", RunStatus()); },
                          "cannot write '" + (dir / "no/status.json") + "' (no such file or directory)");
}

TEST(Metrics, RowsAppendAndCarryTheAttempt)
{
    const TempDir dir;
    const std::string path = dir / "metrics.jsonl";
    for (int attempt = 1; attempt <= 2; ++attempt)
    {
        MetricsWriter writer(path, attempt);
        writer.write({{"step", 10}, {"loss", 1.5}});
        writer.write({{"step", 20}, {"phases", {{"forward", 0.1}}}});
    }
    const auto rows = read_metrics(path);
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[0].at("attempt"), 1);
    EXPECT_EQ(rows[3].at("attempt"), 2);
    EXPECT_EQ(rows[3].at("phases").at("forward"), 0.1);
    EXPECT_EQ(rows[0].at("time").get<std::string>().size(), 24u);
}

TEST(Metrics, EachRowIsOnDiskWhenItWasWritten)
{
    const TempDir dir;
    MetricsWriter writer(dir / "metrics.jsonl", 1);
    EXPECT_TRUE(read_metrics(dir / "metrics.jsonl").empty());
    writer.write({{"step", 1}});
    EXPECT_EQ(read_metrics(dir / "metrics.jsonl").size(), 1u);
}

TEST(Metrics, ATornLastLineStaysAloneOnResume)
{
    const TempDir dir;
    const std::string path = dir / "metrics.jsonl";
    std::ofstream(path) << "{\"step\": 1}\n{\"step\": 2, \"lo";
    {
        MetricsWriter writer(path, 2);
        writer.write({{"step", 2}});
        writer.write({{"step", 3}});
    }
    int skipped = 0;
    const auto rows = read_metrics(path, &skipped);
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(skipped, 1);
    EXPECT_EQ(rows[1].at("step"), 2);
    EXPECT_EQ(rows[2].at("step"), 3);
}

TEST(Metrics, NonFiniteNumbersAreNamed)
{
    const TempDir dir;
    MetricsWriter writer(dir / "metrics.jsonl", 1);
    const double infinity = std::numeric_limits<double>::infinity();
    writer.write({{"loss", std::nan("")}, {"all", {infinity, -infinity, 1.0}}});
    const auto rows = read_metrics(dir / "metrics.jsonl");
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].at("loss"), "nan");
    EXPECT_EQ(rows[0].at("all"), nlohmann::json::parse(R"(["inf", "-inf", 1.0])"));
}

TEST(Metrics, AFullDiskIsAnError)
{
    MetricsWriter writer("/dev/full", 1);
    expect_error<IoError>([&] { writer.write({{"step", 1}}); }, "cannot write '/dev/full' (no space left on device)");
    expect_error<IoError>([] { MetricsWriter("/nowhere/x", 1); },
                          "cannot open '/nowhere/x' (no such file or directory)");
}
