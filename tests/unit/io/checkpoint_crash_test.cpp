// A writer is killed (SIGKILL) at every crash point and at random times. After each kill: the newest committed checkpoint
// loads with all checks, holds what its step must hold, nothing torn is ever chosen, and the next save works.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <set>
#include <thread>

#include "comm/thread_communicator.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_steps.hpp"
#include "io/file.hpp"
#include "support/synthetic_checkpoint.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{
namespace
{

using namespace plimsoll::testing;

// Kills come at any instant of a process, whose page cache survives: a file system in memory tests the same and syncs fast.
std::vector<CheckpointBox> boxes_of_step(std::int64_t step)
{
    return small_boxes(1 + step % 4);
}

// By one rank without a communicator, or by several threads; two ranks share a file.
void save(std::int64_t num_ranks, const std::string& root, std::int64_t step)
{
    const std::vector<CheckpointBox> boxes = boxes_of_step(step);
    if (num_ranks == 1)
    {
        save_synthetic(root, step, boxes);
        return;
    }
    run_ranks(num_ranks, [&](Communicator& world) {
        save_synthetic(root, step, dealt_boxes(boxes, world.rank(), world.size()), tensor_names(boxes), world, 2);
    });
}

enum class Replacement { none, by_exchange, by_renames };

void set_faults(const std::string& point, Replacement replacement)
{
    ::setenv("PLIMSOLL_CRASH_POINT", point.c_str(), 1);
    ::setenv("PLIMSOLL_FAULT_NO_EXCHANGE", replacement == Replacement::by_renames ? "1" : "0", 1);
    reload_faults();
}

// Runs `body` in a child; true when the child was killed, false when it came to its end.
template<class Body>
bool is_killed(Body&& body)
{
    const pid_t child = ::fork();
    if (child == 0)
    {
        try
        {
            body();
        }
        catch (...)
        {
            ::_exit(3);
        }
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "the child threw";
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

// All that must hold under `root` at any time.
void expect_sound(const std::string& root, std::int64_t at_least, std::int64_t at_most)
{
    std::vector<std::string> warnings;
    const std::string newest = find_checkpoint(root, &warnings);
    ASSERT_FALSE(newest.empty());
    EXPECT_TRUE(warnings.empty()) << warnings[0];
    const std::int64_t step = CheckpointReader(newest).meta().trainer.step;
    EXPECT_GE(step, at_least);
    EXPECT_LE(step, at_most);
    for (const std::int64_t committed : committed_steps(root))
    {
        const std::string path = step_path(root, committed);
        const VerifyReport report = verify_checkpoint(path, VerifyLevel::full);
        EXPECT_TRUE(report.faults.empty()) << report.faults[0];
        EXPECT_EQ(content_fault(path, committed), "") << path;
    }
    if (path_exists(root + "/latest"))
    {
        std::string name = read_text_file(root + "/latest");
        ASSERT_FALSE(name.empty());
        name.pop_back();
        const std::int64_t named = std::stoll(name.substr(5));
        EXPECT_TRUE(verify_checkpoint(step_path(root, named), VerifyLevel::full).faults.empty()) << name;
    }
}

void expect_clean_after_next_save(const std::string& root, std::int64_t step)
{
    save_synthetic(root, step, boxes_of_step(step));
    for (const std::string& name : list_directory(root)) { EXPECT_NE(name[0], '.') << name; }
    expect_sound(root, step, step);
}

struct KillCase
{
    Replacement replacement;
    std::int64_t num_ranks;
};

class KilledAt : public ::testing::TestWithParam<KillCase>
{
};

// Steps 1 and 2 are committed; a child saves step 3 (or step 2 again) and keeps two steps.
TEST_P(KilledAt, EveryPointOfTheProtocol)
{
    const Replacement replacement = GetParam().replacement;
    const std::int64_t num_ranks = GetParam().num_ranks;
    const std::int64_t new_step = replacement == Replacement::none ? 3 : 2;
    std::set<std::string> reached;
    bool is_published = false;
    bool is_publishing = false;
    for (const std::string& point : checkpoint::crash_points())
    {
        // Up to here a replacement is no other than a new step.
        is_publishing = is_publishing || point == "checkpoint.publish";
        if (replacement != Replacement::none && !is_publishing) { continue; }
        for (int count = 1;; ++count)
        {
            const TempDir dir(fast_directory());
            const std::string root = dir / "ckpt";
            save_synthetic(root, 1, boxes_of_step(1));
            save_synthetic(root, 2, boxes_of_step(2));
            const bool killed = is_killed([&] {
                set_faults(fmt::format("{}:{}", point, count), replacement);
                save(num_ranks, root, new_step);
                apply_retention(root, replacement == Replacement::none ? 2 : 1);
            });
            SCOPED_TRACE(fmt::format("{}:{}", point, count));
            if (!killed) { break; }
            reached.insert(point);
            is_published = is_published || point == "checkpoint.root_sync";
            const bool is_file_point = point.compare(0, 5, "file.") == 0;
            expect_sound(root, is_published && !is_file_point ? new_step : 2, is_published ? new_step : 2);
            expect_clean_after_next_save(root, 4);
        }
    }
    is_publishing = false;
    for (const std::string& point : checkpoint::crash_points())
    {
        is_publishing = is_publishing || point == "checkpoint.publish";
        const bool expected = point == "checkpoint.replace" ? replacement == Replacement::by_renames
                                                            : replacement == Replacement::none || is_publishing;
        EXPECT_EQ(reached.count(point) > 0, expected) << point;
    }
}

INSTANTIATE_TEST_SUITE_P(Crash, KilledAt,
                         ::testing::Values(KillCase{Replacement::none, 1}, KillCase{Replacement::by_exchange, 1},
                                           KillCase{Replacement::by_renames, 1}, KillCase{Replacement::none, 4},
                                           KillCase{Replacement::by_renames, 4}),
                         [](const auto& param) {
                             const Replacement replacement = param.param.replacement;
                             return std::string(replacement == Replacement::none          ? "NewStep"
                                                : replacement == Replacement::by_exchange ? "ReplacedByExchange"
                                                                                          : "ReplacedByRenames") +
                                    (param.param.num_ranks == 1 ? "" : "ByFourRanks");
                         });

// The child saves step after step and tells each commit through a pipe; what it told must never be lost.
void run_random_kill(std::int64_t num_ranks, const std::string& root, std::int64_t& newest, int delay_us)
{
    int ends[2] = {-1, -1};
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0)
    {
        ::close(ends[0]);
        for (std::int64_t step = newest + 1;; ++step)
        {
            save(num_ranks, root, step);
            if (::write(ends[1], &step, sizeof step) != sizeof step) { ::_exit(3); }
            apply_retention(root, 2);
        }
    }
    ::close(ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    std::int64_t told = newest;
    while (::read(ends[0], &told, sizeof told) == sizeof told) {}
    ::close(ends[0]);
    const std::vector<std::int64_t> steps = committed_steps(root);
    if (told > 0)
    {
        ASSERT_FALSE(steps.empty());
        // The commit may be done and not told yet.
        expect_sound(root, told, told + 1);
        ASSERT_GE(steps.size(), std::min<std::size_t>(2, static_cast<std::size_t>(told)));
    }
    newest = steps.empty() ? 0 : steps.back();
}

void run_random_kills(std::int64_t num_ranks, int num_kills)
{
    const TempDir dir(fast_directory());
    const std::string root = dir / "ckpt";
    // Delays are measured in saves: the test means the same on a slow machine and under a sanitizer.
    const auto start = std::chrono::steady_clock::now();
    for (const std::int64_t step : {1, 2, 3}) { save(num_ranks, dir / "measured", step); }
    const auto three_saves = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
    std::mt19937 random(std::random_device{}());
    std::int64_t newest = 0;
    for (int run = 0; run < num_kills; ++run)
    {
        const int delay_us = std::uniform_int_distribution<int>(0, static_cast<int>(2 * three_saves.count()))(random);
        SCOPED_TRACE(fmt::format("run {}, killed after {} us", run, delay_us));
        run_random_kill(num_ranks, root, newest, delay_us);
        if (::testing::Test::HasFailure()) { return; }
    }
    EXPECT_GT(newest, num_kills / 6) << "too few commits between the kills for the test to mean much";
}

TEST(Crash, KilledAtSixtyRandomTimes) { run_random_kills(1, 60); }

TEST(Crash, FourRanksKilledAtThirtyRandomTimes) { run_random_kills(4, 30); }

}  // namespace
}  // namespace plimsoll
