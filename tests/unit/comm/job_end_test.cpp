#include "comm/job_end.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

using namespace plimsoll;

namespace
{

RankEnd done(ExitCode code = ExitCode::done)
{
    RankEnd end;
    end.code = code;
    return end;
}

RankEnd failed(ExitCode code, const std::string& text)
{
    RankEnd end = done(code);
    end.has_failed = true;
    end.text = text;
    return end;
}

RankEnd failed_for(EndReason reason, const std::string& text)
{
    RankEnd end = failed(ExitCode::failed, text);
    end.reason = reason;
    return end;
}

template<class Thrown>
RankEnd end_of(Thrown thrown)
{
    try
    {
        throw thrown;
    }
    catch (...)
    {
        return end_of_current_exception();
    }
}

}  // namespace

TEST(JobEnd, WithoutAFailureIsWhatRankZeroReturned)
{
    EXPECT_EQ(conclude({done()}).code, ExitCode::done);
    const JobEnd end = conclude({done(ExitCode::interrupted), done(ExitCode::interrupted)});
    EXPECT_EQ(end.code, ExitCode::interrupted);
    EXPECT_EQ(end.message, "");
}

TEST(JobEnd, WhatAllSayIsSaidOnce)
{
    const JobEnd end = conclude({failed(ExitCode::usage, "no file"), failed(ExitCode::usage, "no file")});
    EXPECT_EQ(end.message, "no file");
    EXPECT_EQ(end.code, ExitCode::usage);
}

TEST(JobEnd, TextsOfSomeRanksCarryTheFirstOfThem)
{
    EXPECT_EQ(conclude({done(), failed(ExitCode::fatal, "disk full"), failed(ExitCode::fatal, "disk full")}).message,
              "rank 1: disk full");
    EXPECT_EQ(conclude({failed(ExitCode::failed, "a"), failed(ExitCode::fatal, "b"), failed(ExitCode::failed, "a")}).message,
              "rank 0: a; rank 1: b");
}

TEST(JobEnd, TextsOfSomeRanksSayWhatTheseDid)
{
    RankEnd end = failed(ExitCode::failed, "disk full");
    end.place = "step 7, after save";
    EXPECT_EQ(conclude({done(), end}).message, "rank 1 (step 7, after save): disk full");
    EXPECT_EQ(conclude({end, end}).message, "disk full");
}

TEST(JobEnd, TheReasonCountsAndNotThoseThatWereCutOff)
{
    const RankEnd cut_off = failed_for(EndReason::cut_off, "rank 2 failed");
    const JobEnd end = conclude({cut_off, cut_off, failed(ExitCode::fatal, "loss is nan")});
    EXPECT_EQ(end.message, "rank 2: loss is nan");
    EXPECT_EQ(end.code, ExitCode::fatal);
    const RankEnd lost = failed_for(EndReason::connection, "rank 0 hangs");
    EXPECT_EQ(conclude({done(), lost}).message, "rank 1: rank 0 hangs");
    EXPECT_EQ(conclude({cut_off, lost}).message, "rank 1: rank 0 hangs");
    EXPECT_EQ(conclude({cut_off, done()}).message, "rank 0: rank 2 failed");
}

TEST(JobEnd, ManyTextsAreCut)
{
    std::vector<RankEnd> ends;
    for (int i = 0; i < 7; ++i) { ends.push_back(failed(ExitCode::failed, std::string(1, static_cast<char>('a' + i)))); }
    EXPECT_EQ(conclude(ends).message, "rank 0: a; rank 1: b; rank 2: c; rank 3: d; and 3 other messages");
}

TEST(RankEnd, KnowsEveryKindOfException)
{
    EXPECT_EQ(end_of(NumericError("loss is nan")).code, ExitCode::fatal);
    EXPECT_EQ(end_of(NumericError("loss is nan")).text, "loss is nan");
    EXPECT_EQ(end_of(NumericError("loss is nan")).reason, EndReason::own);
    EXPECT_EQ(end_of(CommError("rank 1 is dead")).reason, EndReason::connection);
    EXPECT_EQ(end_of(CutOffError("rank 1 failed")).reason, EndReason::cut_off);
    EXPECT_EQ(end_of(std::bad_alloc()).text.substr(0, 13), "out of memory");
    EXPECT_EQ(end_of(std::runtime_error("odd")).text.substr(0, 22), "unexpected error (odd)");
    EXPECT_EQ(end_of(3).text.substr(0, 32), "unexpected error of unknown type");
    EXPECT_TRUE(end_of(3).has_failed);
}

TEST(RankEnd, TravelsAsBytes)
{
    RankEnd sent = failed_for(EndReason::cut_off, std::string(5000, 'x'));
    sent.place = "step 7";
    const RankEnd end = end_from_bytes(to_bytes(sent));
    EXPECT_EQ(end.place, "step 7");
    EXPECT_EQ(end.text, std::string(5000, 'x'));
    EXPECT_EQ(end.code, ExitCode::failed);
    EXPECT_TRUE(end.has_failed && end.reason == EndReason::cut_off);
    EXPECT_THROW(end_from_bytes("xy"), InternalError);
}
