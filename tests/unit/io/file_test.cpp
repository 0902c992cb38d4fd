#include "io/file.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{
namespace
{

using namespace plimsoll::testing;

// Sets a variable of the fault injection for the time of a test.
class FaultScope
{
  public:
    FaultScope(const char* name, const std::string& value) : name_(name)
    {
        ::setenv(name, value.c_str(), 1);
        reload_faults();
    }
    ~FaultScope()
    {
        ::unsetenv(name_);
        reload_faults();
    }

  private:
    const char* name_;
};

// Known answers: RFC 3720 (iSCSI), appendix B.4, and the check value of CRC-32C in the catalogue of CRC algorithms.
TEST(Crc32c, KnownAnswers)
{
    EXPECT_EQ(crc32c("", 0), 0U);
    EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);
    const std::vector<unsigned char> zeros(32, 0x00);
    const std::vector<unsigned char> ones(32, 0xFF);
    EXPECT_EQ(crc32c(zeros.data(), 32), 0x8A9136AAU);
    EXPECT_EQ(crc32c(ones.data(), 32), 0x62A8AB43U);
    std::vector<unsigned char> rising(32);
    for (unsigned k = 0; k < 32; ++k) { rising[k] = static_cast<unsigned char>(k); }
    EXPECT_EQ(crc32c(rising.data(), 32), 0x46DD794EU);
}

TEST(Crc32c, ContinuesAndCombinesAtEveryCut)
{
    std::string text;
    for (int k = 0; k < 300; ++k) { text += static_cast<char>(k * 7 + 3); }
    const std::uint32_t whole = crc32c(text.data(), 300);
    for (std::int64_t cut = 0; cut <= 300; ++cut)
    {
        const std::uint32_t head = crc32c(text.data(), cut);
        const std::uint32_t tail = crc32c(text.data() + cut, 300 - cut);
        EXPECT_EQ(crc32c(text.data() + cut, 300 - cut, head), whole);
        EXPECT_EQ(crc32c_combine(head, tail, 300 - cut), whole);
    }
}

TEST(Crc32c, CombinesOverMoreThanFourGibibytes)
{
    // zeros(2^32 + 5) built by doubling must equal one combine over the whole length.
    const std::string seed = "plimsoll";
    const std::uint32_t crc_seed = crc32c(seed.data(), 8);
    const char zero = 0;
    std::uint32_t zeros = crc32c(&zero, 1);
    std::uint32_t stepwise = crc_seed;
    std::int64_t length = 1;
    for (int k = 0; k < 32; ++k)
    {
        zeros = crc32c_combine(zeros, zeros, length);
        length *= 2;
    }
    stepwise = crc32c_combine(stepwise, zeros, length);
    const std::vector<char> five(5, 0);
    stepwise = crc32c(five.data(), 5, stepwise);
    const std::uint32_t tail = crc32c(five.data(), 5, zeros);
    EXPECT_EQ(crc32c_combine(crc_seed, tail, length + 5), stepwise);
}

TEST(File, MissingFileNamesPathAndReason)
{
    EXPECT_EQ(message_of([] { File("/nonexistent/x.h5", File::Mode::read); }),
              "cannot open '/nonexistent/x.h5' (no such file or directory)");
    EXPECT_EQ(message_of([] { File("/nonexistent/x.h5", File::Mode::create); }),
              "cannot create '/nonexistent/x.h5' (no such file or directory)");
    EXPECT_THROW(File("/nonexistent/x.h5", File::Mode::read_write), IoError);
}

TEST(File, DirectoryIsNoFile)
{
    const TempDir dir;
    EXPECT_EQ(message_of([&] { File(dir.path(), File::Mode::read); }),
              "cannot open '" + dir.path() + "' (is a directory)");
}

TEST(File, ReadsBackWhatWasWrittenAtAnOffset)
{
    const TempDir dir;
    File file(dir / "x", File::Mode::create);
    file.write_at("abc", 3, 5);
    EXPECT_EQ(file.size(), 8);
    char text[3] = {};
    file.read_at(text, 3, 5);
    EXPECT_EQ(std::string(text, 3), "abc");
    file.sync();
    file.close();
    EXPECT_EQ(read_text_file(dir / "x"), std::string(5, '\0') + "abc");
}

TEST(File, ReadPastTheEndIsATruncatedFile)
{
    const TempDir dir;
    write_file_atomically(dir / "x", "0123456789");
    const File file(dir / "x", File::Mode::read);
    char text[8];
    EXPECT_EQ(message_of([&] { file.read_at(text, 8, 4); }),
              (dir / "x") + ": truncated file (8 bytes wanted at offset 4, the file has 10)");
    EXPECT_THROW(file.read_at(text, 8, 4), FormatError);
}

TEST(File, ReserveKeepsContentAndFailsWhenTheDiskIsTooSmall)
{
    const TempDir dir;
    File file(dir / "x", File::Mode::create);
    file.write_at("abc", 3, 0);
    file.reserve(0);
    file.reserve(100000);
    char text[3];
    file.read_at(text, 3, 0);
    EXPECT_EQ(std::string(text, 3), "abc");
    EXPECT_THROW(file.reserve(std::int64_t{1} << 55), IoError);
}

TEST(File, MovedFromFileIsClosedOnce)
{
    const TempDir dir;
    File first(dir / "x", File::Mode::create);
    const int descriptor = first.descriptor();
    File second = std::move(first);
    EXPECT_EQ(second.descriptor(), descriptor);
    EXPECT_EQ(first.descriptor(), -1);
}

TEST(File, DiskFullIsInjectedAfterTheGivenBytes)
{
    const TempDir dir;
    const FaultScope fault("PLIMSOLL_FAULT_ENOSPC_AFTER", "10");
    File file(dir / "x", File::Mode::create);
    file.write_at("0123456789", 10, 0);
    EXPECT_EQ(message_of([&] { file.write_at("a", 1, 10); }),
              "cannot write '" + (dir / "x") + "' (no space left on device)");
}

TEST(File, QuotaIsInjectedAfterTheGivenBytes)
{
    const TempDir dir;
    const FaultScope fault("PLIMSOLL_FAULT_EDQUOT_AFTER", "0");
    File file(dir / "x", File::Mode::create);
    EXPECT_EQ(message_of([&] { file.write_at("a", 1, 0); }),
              "cannot write '" + (dir / "x") + "' (disk quota exceeded)");
}

TEST(WriteFileAtomically, LeavesTheOldContentWhenTheDiskIsFull)
{
    const TempDir dir;
    write_file_atomically(dir / "x", "old");
    {
        const FaultScope fault("PLIMSOLL_FAULT_ENOSPC_AFTER", "1");
        EXPECT_THROW(write_file_atomically(dir / "x", "new content"), IoError);
    }
    EXPECT_EQ(read_text_file(dir / "x"), "old");
    EXPECT_EQ(list_directory(dir.path()), std::vector<std::string>{"x"});
    write_file_atomically(dir / "x", "new content");
    EXPECT_EQ(read_text_file(dir / "x"), "new content");
}

TEST(WriteFileAtomically, ShowsOldOrNewWhenKilledAtEachPoint)
{
    for (const char* point : {"file.written", "file.synced", "file.renamed"})
    {
        const TempDir dir;
        write_file_atomically(dir / "x", "old");
        const pid_t child = ::fork();
        if (child == 0)
        {
            ::setenv("PLIMSOLL_CRASH_POINT", point, 1);
            reload_faults();
            write_file_atomically(dir / "x", "new");
            ::_exit(0);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << point;
        EXPECT_EQ(read_text_file(dir / "x"), std::string(point) == "file.renamed" ? "new" : "old");
    }
}

TEST(CrashPoint, CountsAndIgnoresOtherNames)
{
    const FaultScope fault("PLIMSOLL_CRASH_POINT", "here:3");
    crash_point("there");
    crash_point("here");
    crash_point("here");
    EXPECT_EXIT(crash_point("here"), ::testing::KilledBySignal(SIGKILL), "");
}

TEST(ExchangePaths, SwapsOrSaysThatItCannot)
{
    const TempDir dir;
    make_directories(dir / "a/one");
    make_directories(dir / "b/two");
    {
        const FaultScope fault("PLIMSOLL_FAULT_NO_EXCHANGE", "1");
        EXPECT_FALSE(exchange_paths(dir / "a", dir / "b"));
    }
    if (exchange_paths(dir / "a", dir / "b"))
    {
        EXPECT_TRUE(path_exists(dir / "a/two"));
        EXPECT_TRUE(path_exists(dir / "b/one"));
    }
    EXPECT_THROW(exchange_paths(dir / "a", dir / "nothing"), IoError);
}

TEST(Paths, SizesListsAndRemoves)
{
    const TempDir dir;
    EXPECT_EQ(file_size(dir / "x"), -1);
    EXPECT_EQ(file_size(dir.path()), -1);
    make_directories(dir / "a/b/c");
    make_directories(dir / "a/b/c");
    write_file_atomically(dir / "a/x", "1234");
    EXPECT_EQ(file_size(dir / "a/x"), 4);
    EXPECT_TRUE(is_directory(dir / "a/b"));
    EXPECT_FALSE(is_directory(dir / "a/x"));
    EXPECT_EQ(list_directory(dir / "a"), (std::vector<std::string>{"b", "x"}));
    EXPECT_GT(free_bytes(dir.path()), 0);
    remove_tree(dir / "a");
    remove_tree(dir / "a");
    EXPECT_FALSE(path_exists(dir / "a"));
    EXPECT_EQ(message_of([&] { (void)list_directory(dir / "a"); }),
              "cannot list '" + (dir / "a") + "' (no such file or directory)");
    EXPECT_EQ(message_of([&] { rename_path(dir / "a", dir / "b"); }),
              "cannot rename '" + (dir / "a") + "' to '" + (dir / "b") + "' (no such file or directory)");
    EXPECT_THROW(sync_directory(dir / "a"), IoError);
    EXPECT_THROW((void)free_bytes(dir / "a"), IoError);
    EXPECT_THROW((void)read_text_file(dir / "a"), IoError);
}

}  // namespace
}  // namespace plimsoll
