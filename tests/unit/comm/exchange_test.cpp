#include "comm/exchange.hpp"

#include <gtest/gtest.h>

#include "comm/thread_communicator.hpp"
#include "support/expect_error.hpp"

namespace plimsoll
{
namespace
{

std::string text_of(std::int64_t rank, std::size_t length) { return std::string(length, static_cast<char>('a' + rank)); }

TEST(Exchange, OneRankGetsItsOwnBytes)
{
    const auto self = make_self_communicator("self");
    EXPECT_EQ(all_gather_bytes(*self, "x"), (std::vector<std::string>{"x"}));
    EXPECT_EQ(all_gather_bytes(*self, ""), (std::vector<std::string>{""}));
    EXPECT_EQ(broadcast_bytes(*self, "abc", 0), "abc");
}

// Even lengths are padded, one long part among short ones is sent by itself: both ways, and none at all.
TEST(Exchange, EveryRankGetsAllPartsInOrder)
{
    for (const std::vector<std::size_t>& lengths :
         {std::vector<std::size_t>{0, 0, 0}, {1, 2, 3}, {0, 7, 0}, {300000, 299000, 300000}, {0, 1000000, 3}, {1000000, 0, 0}})
    {
        run_ranks(3, [&](Communicator& world) {
            const auto mine = static_cast<std::size_t>(world.rank());
            const std::vector<std::string> all = all_gather_bytes(world, text_of(world.rank(), lengths[mine]));
            ASSERT_EQ(all.size(), 3U);
            for (std::size_t rank = 0; rank < 3; ++rank) { EXPECT_EQ(all[rank], text_of(static_cast<std::int64_t>(rank), lengths[rank])); }
        });
    }
}

TEST(Exchange, BroadcastFromAnyRootAndOfNothing)
{
    run_ranks(3, [](Communicator& world) {
        for (const std::size_t length : {0, 1, 100000})
        {
            for (std::int64_t root = 0; root < 3; ++root)
            {
                EXPECT_EQ(broadcast_bytes(world, text_of(world.rank(), length + static_cast<std::size_t>(world.rank())), root),
                          text_of(root, length + static_cast<std::size_t>(root)));
            }
        }
    });
}

TEST(Exchange, AgreementOnSuccessReturnsOnAll)
{
    run_ranks(3, [](Communicator& world) { EXPECT_NO_THROW(agree(world, [] {})); });
}

TEST(Exchange, AFailureIsThrownOnAllWithRankAndExitCode)
{
    run_ranks(3, [](Communicator& world) {
        try
        {
            agree(world, [&] { VALIDATE(world.rank() == 0, UsageError, "bad value of rank {}", world.rank()); });
            ADD_FAILURE() << "rank " << world.rank() << " did not throw";
        }
        catch (const IoError& error)
        {
            EXPECT_STREQ(error.what(), "rank 1: bad value of rank 1");
            EXPECT_EQ(error.exit_code(), ExitCode::usage);
        }
        agree(world, [] {});  // the group goes on
    });
}

TEST(Exchange, AnyExceptionCountsAsFailure)
{
    run_ranks(2, [](Communicator& world) {
        EXPECT_THROW(agree(world, [&] { if (world.rank() == 1) { throw std::bad_alloc(); } }), IoError);
    });
    const auto self = make_self_communicator("self");
    EXPECT_THROW(agree(*self, [] { throw UsageError("as it is"); }), UsageError);
}

TEST(Exchange, MessagesGiveBackWhatWasAdded)
{
    MessageWriter writer;
    writer.add(std::int64_t{-5});
    writer.add_text("");
    writer.add_text(std::string("a\0b", 3));
    writer.add_list(std::vector<std::uint32_t>{1, 2, 3});
    writer.add_list(std::vector<double>());
    writer.add(std::uint8_t{7});
    MessageReader reader(writer.bytes());
    EXPECT_EQ(reader.get<std::int64_t>(), -5);
    EXPECT_EQ(reader.get_text(), "");
    EXPECT_EQ(reader.get_text(), std::string("a\0b", 3));
    EXPECT_EQ(reader.get_list<std::uint32_t>(), (std::vector<std::uint32_t>{1, 2, 3}));
    EXPECT_TRUE(reader.get_list<double>().empty());
    EXPECT_FALSE(reader.at_end());
    EXPECT_EQ(reader.get<std::uint8_t>(), 7);
    EXPECT_TRUE(reader.at_end());
}

TEST(Exchange, AMessageThatEndsTooEarlyIsRefused)
{
    MessageWriter writer;
    writer.add(std::uint64_t{1} << 60);  // a length
    for (std::size_t keep = 0; keep <= 8; ++keep)
    {
        const std::string cut = writer.bytes().substr(0, keep);
        EXPECT_THROW(MessageReader(cut).get_text(), InternalError);
        EXPECT_THROW(MessageReader(cut).get_list<std::int64_t>(), InternalError);
    }
}

}  // namespace
}  // namespace plimsoll
