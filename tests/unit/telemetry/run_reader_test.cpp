#include "telemetry/run_reader.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"
#include "telemetry/host.hpp"
#include "telemetry/metrics_reader.hpp"

using namespace plimsoll;
using plimsoll::testing::expect_error;
using plimsoll::testing::TempDir;

namespace
{

/// A step as the trainer writes it.
std::string step_row(int step, int attempt, double loss = 2.0)
{
    return fmt::format(
        R"({{"step":{0},"loss":{1},"grad_norm":0.5,"lr":0.001,"tokens_per_second":{2},"consumed_tokens":{3},"updated":true,)"
        R"("peak_bytes":{4},"seconds":0.5,"phase_seconds":{{"data":0.1,"forward":0.15,"backward":0.2}},"attempt":{5},)"
        R"("time":"2026-01-31T12:00:{6:02}.000Z"}})"
        "\n",
        step, loss, 1000 + step, step * 100, 1000 * step, attempt, step % 60);
}

std::string steps(int first, int last, int attempt, double loss = 2.0)
{
    std::string text;
    for (int step = first; step <= last; ++step) { text += step_row(step, attempt, loss); }
    return text;
}

class RunReader : public ::testing::Test
{
  protected:
    void write(const std::string& name, const std::string& text)
    {
        std::filesystem::create_directories((path() + "/" + name).substr(0, (path() + "/" + name).rfind('/')));
        std::ofstream(path() + "/" + name) << text;
    }
    std::string path() const { return dir_ / "demo"; }
    std::string metrics() const { return path() + "/metrics.jsonl"; }

    const TempDir dir_;
};

}  // namespace

TEST_F(RunReader, OneStep)
{
    write("metrics.jsonl", step_row(1, 1, 5.5));
    const RunSummary run = read_run(path());
    EXPECT_EQ(run.name, "demo");
    EXPECT_FALSE(run.status.has_value());
    EXPECT_EQ(run.first_step, 1);
    EXPECT_EQ(run.last_step, 1);
    EXPECT_EQ(run.total_steps, 0);
    EXPECT_EQ(run.tokens, 100);
    EXPECT_EQ(run.loss.last_value(), 5.5);
    EXPECT_EQ(run.median_tokens_per_second, 1001);
    EXPECT_EQ(run.peak_bytes, 1000);
    EXPECT_EQ(run.attempts.size(), 1U);
    EXPECT_EQ(run.validation.count(), 0);
    EXPECT_EQ(run.phases, (std::vector<std::string>{"data", "forward", "backward", "other"}));
    ASSERT_EQ(run.phase_buckets.size(), 1U);
    EXPECT_NEAR(run.phase_buckets[0].phase_seconds[3], 0.05, 1e-12);
    EXPECT_EQ(run.last_time, "2026-01-31T12:00:01.000Z");
}

TEST_F(RunReader, TheLastRowOfAStepCounts)
{
    write("metrics.jsonl", steps(1, 30, 1, 4) + steps(21, 40, 2, 3) + steps(41, 50, 3, 2));
    const RunSummary run = read_run(path());
    EXPECT_EQ(run.loss.count(), 50);
    EXPECT_EQ(run.loss.buckets()[19].mean(), 4);
    EXPECT_EQ(run.loss.buckets()[20].mean(), 3) << "step 21 was done twice";
    EXPECT_EQ(run.loss.buckets()[49].mean(), 2);
    EXPECT_EQ(run.repeated_steps, 10);
    ASSERT_EQ(run.attempts.size(), 3U);
    EXPECT_EQ(run.attempts[0].last_step, 30);
    EXPECT_EQ(run.attempts[0].repeated, 10);
    EXPECT_EQ(run.attempts[1].first_step, 21);
    EXPECT_EQ(run.attempts[2].repeated, 0);
    EXPECT_NEAR(run.step_seconds, 25, 1e-9) << "the seconds of steps that count";
}

TEST_F(RunReader, StepsThatALaterAttemptHasNotReachedAgainAreGone)
{
    write("metrics.jsonl", steps(1, 50, 1, 4) + steps(31, 50, 2, 3) + steps(21, 25, 3, 2));
    const RunSummary run = read_run(path());
    EXPECT_EQ(run.last_step, 25);
    EXPECT_EQ(run.repeated_steps, 50);
    EXPECT_EQ(run.loss.last_value(), 2);
    EXPECT_EQ(run.tokens, 2500);
    EXPECT_EQ(run.loss.minimum(), 2);
    EXPECT_EQ(run.loss.maximum(), 4) << "attempt 2 left nothing behind";
}

TEST_F(RunReader, AStartFromAnotherCheckpointBeginsLater)
{
    write("metrics.jsonl", steps(101, 110, 1));
    const RunSummary run = read_run(path());
    EXPECT_EQ(run.first_step, 101);
    EXPECT_EQ(run.last_step, 110);
}

TEST_F(RunReader, ValidationIsThatOfEvalOrOfTheFirstNamedSet)
{
    const std::string named = steps(1, 10, 1) + R"({"step":5,"set":"wiki","val_loss":5.0,"attempt":1})" + "\n" +
                              R"({"step":5,"set":"code","val_loss":4.0,"attempt":1})" + "\n";
    write("metrics.jsonl", named);
    EXPECT_EQ(read_run(path()).best_validation, 5);
    EXPECT_EQ(read_run(path()).validation.count(), 1);
    write("metrics.jsonl", named + R"({"step":10,"val_loss":3.0,"attempt":1})" + "\n" +
                               R"({"step":10,"set":"code","val_loss":2.0,"attempt":1})" + "\n");
    EXPECT_EQ(read_run(path()).best_validation, 3);
    EXPECT_EQ(read_run(path()).validation.count(), 1);
}

TEST_F(RunReader, ValidationSavesAndFailures)
{
    write("metrics.jsonl", steps(1, 10, 1) +
                               R"({"step":10,"val_loss":3.0,"bits_per_byte":2.5,"attempt":1})"
                               "\n"
                               R"({"step":10,"saved_bytes":500,"seconds":0.25,"attempt":1,"time":"t"})"
                               "\n" +
                               steps(11, 20, 1) +
                               R"({"step":20,"val_loss":2.0,"attempt":1})"
                               "\n"
                               R"({"step":20,"save_failed":"no space left","attempt":1})"
                               "\n"
                               R"({"step":20,"some_later_kind":1})"
                               "\n" +
                               steps(11, 15, 2) + R"({"step":15,"val_loss":"nan","attempt":2})" + "\n");
    write("ckpt/step_00000010/COMMIT", "");
    const RunSummary run = read_run(path());
    EXPECT_EQ(run.validation.count(), 1) << "the one of step 20 was undone";
    EXPECT_EQ(run.validation.not_finite(), 1);
    EXPECT_EQ(run.best_validation, 3);
    EXPECT_EQ(run.best_validation_step, 10);
    EXPECT_EQ(run.bits_per_byte, 2.5);
    ASSERT_EQ(run.checkpoints.size(), 1U);
    EXPECT_EQ(run.checkpoints[0].bytes, 500);
    EXPECT_TRUE(run.checkpoints[0].on_disk);
    EXPECT_EQ(run.checkpoint_seconds, 0.25);
    EXPECT_EQ(run.num_failed_saves, 0) << "undone with its step";
}

TEST_F(RunReader, AFailedSaveIsKept)
{
    write("metrics.jsonl", steps(1, 2, 1) + R"({"step":2,"save_failed":"no space left","attempt":1})" + "\n");
    const RunSummary run = read_run(path());
    EXPECT_EQ(run.num_failed_saves, 1);
    EXPECT_EQ(run.last_failed_save, "step 2: no space left");
}

TEST_F(RunReader, NumbersThatAreNone)
{
    write("metrics.jsonl", R"({"step":1,"loss":2.5,"grad_norm":"inf","updated":false})"
                           "\n"
                           R"({"step":2,"loss":"nan","grad_norm":"-inf","updated":true})"
                           "\n");
    const RunSummary run = read_run(path());
    EXPECT_EQ(run.loss.not_finite(), 1);
    EXPECT_TRUE(std::isnan(run.loss.last_value()));
    EXPECT_EQ(run.grad_norm.not_finite(), 2);
    EXPECT_EQ(run.skipped_updates, 1);
}

TEST_F(RunReader, CurvesOfALongRunAreBounded)
{
    std::string text;
    for (int step = 1; step <= 5000; ++step) { text += step_row(step, 1); }
    write("metrics.jsonl", text);
    RunReadOptions options;
    options.curve_points = 100;
    options.phase_bars = 10;
    const RunSummary run = read_run(path(), options);
    EXPECT_LE(run.loss.buckets().size(), 100U);
    EXPECT_EQ(run.phase_buckets.size(), 10U);
    EXPECT_EQ(run.phase_buckets[9].last_step, 5000);
    EXPECT_EQ(run.phase_buckets[0].count, 500);
}

TEST_F(RunReader, TheNewestCheckpointsAreListed)
{
    std::string text;
    for (int step = 1; step <= 30; ++step)
    {
        text += step_row(step, 1) + fmt::format(R"({{"step":{},"saved_bytes":1,"attempt":1}})", step) + "\n";
    }
    write("metrics.jsonl", text);
    RunReadOptions options;
    options.max_checkpoints = 8;
    const RunSummary run = read_run(path(), options);
    EXPECT_EQ(run.num_checkpoints, 30);
    ASSERT_EQ(run.checkpoints.size(), 8U);
    EXPECT_EQ(run.checkpoints.front().step, 23);
    EXPECT_EQ(run.checkpoints.back().step, 30);
    EXPECT_FALSE(run.checkpoints.back().on_disk);
}

TEST_F(RunReader, ATornLineIsSkippedWhereverItIs)
{
    const std::string torn = step_row(3, 1).substr(0, 41);
    write("metrics.jsonl", steps(1, 2, 1) + torn + "\n" + steps(2, 4, 2) + "{\"step\":5,\"lo");
    const RunSummary run = read_run(path());
    EXPECT_EQ(run.torn_lines, 2);
    EXPECT_EQ(run.last_step, 4);
    // Wherever a kill cuts a row, what is left is skipped.
    const std::string row = step_row(5, 2);
    for (std::size_t cut = 1; cut + 1 < row.size(); ++cut)
    {
        write("metrics.jsonl", steps(1, 4, 2) + row.substr(0, cut));
        EXPECT_EQ(read_run(path()).last_step, 4) << row.substr(0, cut);
    }
    write("metrics.jsonl", steps(1, 4, 2) + row.substr(0, row.size() - 1));
    EXPECT_EQ(read_run(path()).last_step, 5) << "whole but for its line end";
}

TEST_F(RunReader, BrokenRowsNameFileAndLine)
{
    const auto refused = [&](const std::string& line, const std::string& text)
    {
        write("metrics.jsonl", step_row(1, 1) + "\n" + line + "\n" + step_row(3, 1));
        expect_error<FormatError>([&] { read_run(path()); }, metrics() + ":3: " + text);
    };
    refused("[1]", "not a JSON object (it is array)");
    refused("17", "not a JSON object (it is number)");
    refused(R"({"loss":1})", "'step' is missing");
    refused(R"({"step":"1","loss":1})", "'step' is not a whole number");
    refused(R"({"step":-1,"loss":1})", "'step' is not a whole number");
    refused(R"({"step":2,"loss":[]})", "'loss' is not a number");
    refused(R"({"step":2,"loss":1,"phase_seconds":3})", "'phase_seconds' is not an object");
    refused(R"({"step":2,"loss":1,"phase_seconds":{"data":true}})", "'data' is not a number");
    refused(R"({"step":2,"loss":1,"attempt":"x"})", "'attempt' is not a whole number");
    write("metrics.jsonl", step_row(1, 1) + "step 2 loss 3\n" + step_row(2, 1));
    EXPECT_THROW(read_run(path()), FormatError);
    write("metrics.jsonl", step_row(1, 1) + std::string(3, '\0') + "\n");
    EXPECT_THROW(read_run(path()), FormatError);
    write("metrics.jsonl", std::string(3 << 20, 'x'));
    expect_error<FormatError>([&] { read_run(path()); },
                              metrics() + ":1: not a JSON object (longer than 1048576 bytes)");
}

TEST_F(RunReader, WhatIsMissingIsSaid)
{
    expect_error<UsageError>([&] { read_run(path()); }, "no run '" + path() + "' (no such directory)");
    std::filesystem::create_directories(path());
    expect_error<UsageError>([&] { read_run(path()); },
                             "'" + path() +
                                 "' is not the directory of a run (neither metrics.jsonl nor "
                                 "status.json in it)");
    write_status(path() + "/status.json", RunStatus());
    expect_error<UsageError>([&] { read_run(path()); },
                             "no metrics yet in '" + path() +
                                 "' (no metrics.jsonl). try again when the run has finished a step");
    write("metrics.jsonl", "{\"step\":1");
    expect_error<UsageError>([&] { read_run(path()); },
                             "no metrics yet in '" + path() +
                                 "' (metrics.jsonl has no step). try again when the run has finished a step");
    expect_error<UsageError>([&] { read_run(metrics()); }, "'" + metrics() + "' is a file, not the directory of a run");
    write("metrics.jsonl", step_row(1, 1));
    expect_error<UsageError>([&] { read_run(path() + "o"); },
                             "no run '" + path() + "o' (no such directory). nearest: " + path());
}

TEST_F(RunReader, StatusSaysWhetherTheProcessIsThere)
{
    write("metrics.jsonl", step_row(1, 1));
    write_status(path() + "/status.json", RunStatus());
    RunSummary run = read_run(path());
    EXPECT_EQ(run.status->process, static_cast<int>(::getpid()));
    EXPECT_EQ(run.status->host, host_name());
    EXPECT_FALSE(run.process_gone);
    const auto status = [&](const std::string& host, int process)
    {
        write("status.json", fmt::format(R"({{"schema":1,"state":"running","exit":null,"reason":"","step":0,"hint":"",)"
                                         R"("attempt":1,"host":"{}","process":{}}})",
                                         host, process));
        return read_run(path()).process_gone;
    };
    EXPECT_TRUE(status(host_name(), 1 << 30)) << "beyond the largest process number";
    EXPECT_FALSE(status("elsewhere", 1 << 30)) << "nothing is known about another machine";
    write("status.json", "{}");
    EXPECT_THROW(read_run(path()), FormatError);
}

TEST_F(RunReader, SettingsAndChanges)
{
    write("metrics.jsonl", step_row(1, 1));
    const auto ini = [](const std::string& lr, const std::string& length)
    {
        return "[run]\nname = first\n[model]\nname = /m/llama-5m.json\n[layout]\ntp = 2\nglobal-batch = 8\n[data]\n"
               "seq-len = 64\n[train]\nlr = " +
               lr + "\nprecision = fp32\n" + length + "\n";
    };
    write("run.ini", ini("2e-3", "tokens = 30000"));
    write("run.ini.1", ini("1e-3", "steps = 20"));
    write("run.ini.2", ini("2e-3", "steps = 20"));
    const RunSummary run = read_run(path());
    EXPECT_EQ(run.name, "first");
    EXPECT_EQ(run.model, "llama-5m");
    EXPECT_EQ(run.layout, "tp 2 global-batch 8");
    EXPECT_EQ(run.precision, "fp32");
    EXPECT_EQ(run.total_steps, 58) << "30000 / 512, whole steps";
    ASSERT_GE(run.changes.size(), 2U);
    EXPECT_EQ(run.changes[0].snapshot, 1);
    EXPECT_EQ(run.changes[0].change.key, "train.lr");
    EXPECT_EQ(run.changes[0].change.old_value, "1e-3");
    EXPECT_EQ(run.changes[0].change.new_value, "2e-3");
    EXPECT_EQ(run.changes[1].snapshot, 2);
    write("run.ini", "[run\n");
    EXPECT_THROW(read_run(path()), ConfigError);
}

TEST_F(RunReader, PlanAndMeasuredPeaks)
{
    write("metrics.jsonl", R"({"step":1,"loss":1,"peak_bytes":70,"peak_by_category":{"parameters":30,"gradients":20}})"
                           "\n"
                           R"({"step":2,"loss":1,"peak_bytes":60,"peak_by_category":{"parameters":30,"gradients":25}})"
                           "\n");
    write(
        "plan.json",
        R"({"schema":1,"more":[],"ranks":[{"rank":0,"categories":[{"name":"parameters","bytes":30}],"peak_bytes":72},)"
        R"({"rank":1,"categories":[],"peak_bytes":80}]})");
    const RunSummary run = read_run(path());
    EXPECT_EQ(run.peak_bytes, 70);
    ASSERT_EQ(run.peak_by_category.size(), 2U);
    EXPECT_EQ(run.peak_by_category[0].name, "parameters");
    EXPECT_EQ(run.peak_by_category[1].bytes, 25);
    ASSERT_EQ(run.plan.size(), 2U);
    EXPECT_EQ(run.plan[0].categories[0].bytes, 30);
    ASSERT_NE(run.largest_plan(), nullptr);
    EXPECT_EQ(run.largest_plan()->rank, 1);
    EXPECT_EQ(RunSummary().largest_plan(), nullptr);
}

TEST_F(RunReader, ThePlanOfAnAttemptIsComparedWithItsOwnRows)
{
    write("metrics.jsonl", R"({"step":1,"loss":1,"attempt":1,"peak_bytes":90,"peak_by_category":{"gradients":50}})"
                           "\n"
                           R"({"step":2,"loss":1,"attempt":2,"peak_bytes":60,"peak_by_category":{"gradients":25}})"
                           "\n");
    write("plan.json", R"({"schema":1,"attempt":2,"ranks":[{"rank":0,"categories":[],"peak_bytes":61}]})");
    RunSummary run = read_run(path());
    EXPECT_EQ(run.plan_attempt, 2);
    EXPECT_EQ(run.peak_bytes, 60);
    EXPECT_EQ(run.peak_by_category[0].bytes, 25);
    write("plan.json", R"({"schema":1,"attempt":3,"ranks":[{"rank":0,"categories":[],"peak_bytes":61}]})");
    run = read_run(path());
    EXPECT_EQ(run.peak_bytes, 0) << "attempt 3 has no row yet";
}

TEST_F(RunReader, TheLayoutIsThatOfThePlan)
{
    write("metrics.jsonl", "{\"step\":1,\"loss\":1}\n");
    write("run.ini", "[run]\nname = a\n[layout]\ndp = auto\ntp = 1\n");
    EXPECT_EQ(read_run(path()).layout, "dp auto tp 1");
    write("plan.json", R"({"schema":1,"layout":{"dp":2,"tp":1,"pp":1,"zero":0,"micro_batch":4,"global_batch":8},"ranks":[]})");
    EXPECT_EQ(read_run(path()).layout, "dp 2 tp 1 pp 1 zero 0 micro-batch 4 global-batch 8");
}

TEST_F(RunReader, BrokenPlansNameTheField)
{
    const auto refused = [&](const std::string& text, const std::string& message)
    {
        write("plan.json", text);
        expect_error<FormatError>([&] { read_plan_file(path() + "/plan.json"); }, path() + "/plan.json" + message);
    };
    refused("{", ": not JSON");
    refused("[]", " is not an object");
    refused("{}", ": 'schema' is missing");
    refused(R"({"schema":2})", ": schema 2 is not known (only 1). use a newer plimsoll-report");
    refused(R"({"schema":1,"ranks":3})", ": 'ranks' is not a list");
    refused(R"({"schema":1,"layout":{"dp":"x"},"ranks":[]})", ": layout: 'dp' is not a whole number");
    refused(R"({"schema":1,"ranks":[3]})", ": ranks[0] is not an object");
    refused(R"({"schema":1,"ranks":[{"rank":0,"peak_bytes":1.5}]})", ": ranks[0]: 'peak_bytes' is not a whole number");
    refused(
        R"({"schema":1,"ranks":[{"rank":0,"peak_bytes":1,"categories":[{"name":"a","bytes":1},{"name":2,"bytes":1}]}]})",
        ": ranks[0].categories[1]: 'name' is not a text");
}

TEST(SecondsOfUtc, ReadsWhatTheToolsWrite)
{
    EXPECT_EQ(seconds_of_utc("1970-01-02T00:00:01.250Z"), 86401.25);
    EXPECT_EQ(seconds_of_utc("2026-01-31T12:00:00Z"), 1769860800.0);
    for (const char* text :
         {"", "today", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31T12:00:00.5", "2026-01-31T12:00:00.1Zx"})
    {
        EXPECT_FALSE(seconds_of_utc(text).has_value()) << text;
    }
    EXPECT_TRUE(seconds_of_utc(utc_now()).has_value());
}
