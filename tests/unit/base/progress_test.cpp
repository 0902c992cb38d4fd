#include "base/progress.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/log.hpp"
#include "support/memory_stream.hpp"

using namespace plimsoll;
using plimsoll::testing::MemoryStream;

TEST(Progress, LineShowsShareRateAndTimeLeft)
{
    MemoryStream out;
    const Progress progress(out.stream(), StreamKind::log, "shard", ProgressUnit::bytes, 3810000000,
                            [] { return 0.0; });
    EXPECT_EQ(progress.render(2330000000, 10.9, "107 MB/s/thread"),
              "  shard  61 %  ######################..............  2.33 GB  214 MB/s  107 MB/s/thread  0:07 left");
    EXPECT_EQ(progress.render(0, 0, ""), "  shard   0 %  ....................................  0 B  0 B/s");
    EXPECT_EQ(progress.render(4000000000, 10, ""),
              "  shard 100 %  ####################################  4.00 GB  400 MB/s  0:00 left");
}

TEST(Progress, UnknownTotalHasNoShareAndNoTimeLeft)
{
    MemoryStream out;
    const Progress progress(out.stream(), StreamKind::log, "read", ProgressUnit::items, 0, [] { return 0.0; });
    EXPECT_EQ(progress.render(12345, 10, ""), "  read  12,345  1,235/s");
}

TEST(Progress, ALogGetsRowsWithoutControlCharacters)
{
    MemoryStream out;
    double now = 100;
    {
        Progress progress(out.stream(), StreamKind::log, "read", ProgressUnit::items, 100, [&] { return now; });
        for (int i = 0; i <= 70; ++i, now += 1) { progress.update(i); }
        progress.finish();
    }
    const std::string text = out.text();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
    EXPECT_EQ(text.find_first_of("\r\x1b"), std::string::npos);
    EXPECT_NE(text.find(" 30 %"), std::string::npos);
    EXPECT_NE(text.find(" 60 %"), std::string::npos);
}

TEST(Progress, ATerminalLineIsRewrittenAndRemoved)
{
    MemoryStream out;
    double now = 0;
    Progress progress(out.stream(), StreamKind::terminal, "read", ProgressUnit::items, 100, [&] { return now; });
    progress.update(1);
    EXPECT_EQ(out.text(), "") << "short work shows nothing";
    now = 1;
    progress.update(10, "a long note");
    const std::size_t width = out.text().size() - 1;
    now = 1.1;
    progress.update(11);
    EXPECT_EQ(out.text().size(), width + 1) << "not yet due";
    now = 2;
    progress.update(20);
    EXPECT_EQ(out.text().size(), 2 * (width + 1)) << "a shorter line covers the longer one";
    progress.finish();
    EXPECT_EQ(out.text().substr(2 * (width + 1)), "\r" + std::string(width, ' ') + "\r");
    EXPECT_EQ(out.text().find('\n'), std::string::npos);
}

TEST(Progress, AnErrorInTheMiddleStartsOnANewLine)
{
    MemoryStream out;
    double now = 0;
    {
        Progress progress(out.stream(), StreamKind::terminal, "read", ProgressUnit::items, 100, [&] { return now; });
        now = 1;
        progress.update(10);
    }
    EXPECT_EQ(out.text().back(), '\n');
}

TEST(Progress, AFileIsALog)
{
    MemoryStream out;
    EXPECT_EQ(kind_of(out.stream()), StreamKind::log);
}

TEST(Log, LabelsLineUp)
{
    MemoryStream out;
    Log log(out.stream());
    log.row("saved", "ckpt/step_00000040");
    log.row("documents", "812,334");
    log.warning("disk is 97 % full");
    log.line("plain");
    EXPECT_EQ(out.text(), "saved      ckpt/step_00000040\ndocuments  812,334\nwarning    disk is 97 % full\nplain\n");
}
