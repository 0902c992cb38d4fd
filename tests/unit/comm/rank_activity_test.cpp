#include "comm/rank_activity.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.hpp"
#include "support/temp_dir.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace
{

std::string bytes_of(const std::string& path)
{
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

/// A child that writes its status and then waits to be killed.
class Child
{
  public:
    explicit Child(const std::string& directory)
    {
        int ready[2];
        EXPECT_EQ(::pipe(ready), 0);
        pid_ = ::fork();
        if (pid_ == 0)
        {
            const auto activity = RankBoard::in_memory(4)->activity(3);
            activity->write_to(directory);
            activity->set_step(17);
            activity->begin("all_reduce", -1, "tp", 31);
            if (::write(ready[1], "x", 1) != 1) { ::_exit(1); }
            for (;;) { ::pause(); }
        }
        char byte = 0;
        EXPECT_EQ(::read(ready[0], &byte, 1), 1);
        ::close(ready[0]);
        ::close(ready[1]);
    }
    ~Child() { reap(); }
    void kill() { ::kill(pid_, SIGKILL); }
    void reap()
    {
        if (pid_ == 0) { return; }
        kill();
        ::waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

  private:
    pid_t pid_ = 0;
};

}  // namespace

TEST(RankRecord, DescribesInWords)
{
    RankRecord record;
    EXPECT_EQ(describe(record), "before its first operation");
    record.step = 7;
    EXPECT_EQ(describe(record), "step 7");
    record.operation = "forward of micro-batch 2";
    EXPECT_EQ(describe(record), "step 7, after forward of micro-batch 2");
    record.operation = "all_reduce";
    record.group = "tp";
    record.sequence = 31;
    record.under_way = true;
    EXPECT_EQ(describe(record), "step 7, in all_reduce of 'tp' #31");
    record.step = -1;
    record.under_way = false;
    EXPECT_EQ(describe(record), "after all_reduce of 'tp' #31");
}

TEST(RankActivity, KeepsTheLastOperationAndCountsProgress)
{
    const auto board = RankBoard::in_memory(2);
    const auto activity = board->activity(1);
    EXPECT_EQ(board->state(0), RankState::none);
    EXPECT_EQ(board->state(1), RankState::running);
    EXPECT_EQ(board->read(1).pid, ::getpid());
    EXPECT_EQ(board->progress(1), 0);
    activity->set_step(3);
    activity->note("forward of micro-batch", 0);
    EXPECT_EQ(board->progress(1), 2);
    activity->begin("recv from", 2, "pp", 5);
    EXPECT_EQ(board->progress(1), 2) << "waiting is no progress";
    EXPECT_EQ(describe(board->read(1)), "step 3, in recv from 2 of 'pp' #5");
    activity->end("recv from", 2, "pp", 5);
    activity->tick();
    EXPECT_EQ(board->progress(1), 4);
    EXPECT_EQ(describe(board->read(1)), "step 3, after recv from 2 of 'pp' #5");
    activity->note("save");
    EXPECT_EQ(describe(board->read(1)), "step 3, after save");
    activity->set_state(RankState::done);
    EXPECT_EQ(board->state(1), RankState::done);
}

TEST(RankActivity, CutsLongTexts)
{
    const auto board = RankBoard::in_memory(1);
    const auto activity = board->activity(0);
    activity->begin(std::string(200, 'x'), -1, std::string(100, 'g'), 1);
    EXPECT_EQ(board->read(0).operation, std::string(95, 'x'));
    EXPECT_EQ(board->read(0).group, std::string(63, 'g'));
    activity->note("");
    EXPECT_EQ(board->read(0).operation, "");
}

TEST(RankActivity, ReadersAndSeveralWritersSeeWholeTexts)
{
    const auto board = RankBoard::in_memory(1);
    const auto activity = board->activity(0);
    const std::string texts[] = {std::string(90, 'a'), std::string(90, 'b')};
    std::atomic<bool> stop{false};
    std::vector<std::thread> writers;
    for (const std::string& text : texts)
    {
        writers.emplace_back(
            [&]
            {
                while (!stop)
                {
                    activity->note(text);
                    // A reader gives up on a slot that never rests, and takes it as it stands.
                    std::this_thread::sleep_for(std::chrono::microseconds(5));
                }
            });
    }
    for (int i = 0; i < 2000; ++i)
    {
        const std::string seen = board->read(0).operation;
        EXPECT_TRUE(seen.empty() || seen == texts[0] || seen == texts[1]) << seen;
    }
    stop = true;
    for (std::thread& writer : writers) { writer.join(); }
}

TEST(RankStatus, HasTheBytesThatAreDocumented)
{
    const TempDir directory;
    const auto board = RankBoard::in_memory(4);
    const auto activity = board->activity(3);
    activity->write_to(directory / "ranks");
    activity->set_step(17);
    activity->begin("recv from", 2, "pp", 31);
    const std::string bytes = bytes_of(directory / "ranks/rank_00003.status");
    ASSERT_EQ(bytes.size(), 512);
    const auto number = [&](std::size_t offset)
    {
        std::int64_t value = 0;
        std::memcpy(&value, bytes.data() + offset, 8);
        return value;
    };
    EXPECT_EQ(bytes.substr(0, 8), "PLIMRANK");
    EXPECT_EQ(number(8), 1);
    EXPECT_EQ(number(16), 1);
    EXPECT_EQ(number(24), 3);
    EXPECT_EQ(number(32), ::getpid());
    EXPECT_GT(number(40), 0);
    EXPECT_EQ(number(48), 17);
    EXPECT_EQ(number(56), 1);
    EXPECT_NEAR(static_cast<double>(number(64)) / 1e9, static_cast<double>(::time(nullptr)), 60);
    EXPECT_EQ(number(72) % 2, 0);
    EXPECT_EQ(number(80), 1);
    EXPECT_EQ(number(88), 31);
    EXPECT_EQ(number(96), 2);
    EXPECT_STREQ(bytes.data() + 104, "pp");
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    EXPECT_STREQ(bytes.data() + 168, host);
    EXPECT_STREQ(bytes.data() + 232, "recv from");
}

TEST(RankStatus, OutlivesAKilledProcess)
{
    const TempDir directory;
    Child child(directory.path());
    child.reap();
    const RankRecord record = read_rank_status(rank_status_path(directory.path(), 3));
    EXPECT_EQ(record.rank, 3);
    EXPECT_EQ(record.state, RankState::running);
    EXPECT_EQ(describe(record), "step 17, in all_reduce of 'tp' #31");
}

TEST(RankStatus, RefusesWhatIsNone)
{
    const TempDir directory;
    const std::string path = directory / "rank";
    EXPECT_THROW(read_rank_status(path), IoError);
    for (const std::string& bytes : {std::string(), std::string("PLIMRANK"), std::string(512, '\0'), std::string(512, 'x')})
    {
        write(path, bytes);
        EXPECT_THROW(read_rank_status(path), FormatError);
    }
    RankBoard::in_memory(1)->activity(0)->write_to(directory.path());
    std::string bytes = bytes_of(directory / "rank_00000.status");
    for (const std::size_t offset : {std::size_t(8), std::size_t(16)})
    {
        std::string broken = bytes;
        broken[offset] = 9;
        write(path, broken);
        EXPECT_THROW(read_rank_status(path), FormatError) << offset;
    }
    // Killed in the middle of a change: what is there is read.
    bytes[72] = 1;
    write(path, bytes);
    EXPECT_EQ(read_rank_status(path).rank, 0);
}

TEST(RankStatus, CannotBeWrittenWhereThereIsNoDirectory)
{
    const TempDir directory;
    write(directory / "file", "");
    const auto activity = RankBoard::in_memory(1)->activity(0);
    EXPECT_THROW(activity->write_to(directory / "file/ranks"), IoError);
}

TEST(Liveness, TellsADeadProcessFromALivingAndAStrangeOne)
{
    const TempDir directory;
    Child child(directory.path());
    RankRecord record = read_rank_status(rank_status_path(directory.path(), 3));
    EXPECT_EQ(liveness_of(record, SeenBefore::no), Liveness::alive);
    child.kill();
    // First a zombie, which nobody has waited for.
    for (int i = 0; i < 500 && liveness_of(record, SeenBefore::no) != Liveness::dead; ++i)
    {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(liveness_of(record, SeenBefore::no), Liveness::dead);
    child.reap();
    EXPECT_EQ(liveness_of(record, SeenBefore::yes), Liveness::dead);
    EXPECT_EQ(liveness_of(record, SeenBefore::no), Liveness::unknown) << "perhaps of another process namespace";
    record.pid = ::getpid();
    EXPECT_EQ(liveness_of(record, SeenBefore::no), Liveness::unknown) << "another process took its number";
    record.host = "elsewhere";
    EXPECT_EQ(liveness_of(record, SeenBefore::yes), Liveness::unknown);
}
