#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "io/token_prefetch.hpp"

namespace plimsoll
{

namespace
{

/// A batch that says which it is.
void numbered(std::int64_t first, std::int64_t num, TokenBatch& batch)
{
    batch.num = num;
    batch.inputs = {first};
}

}  // namespace

TEST(BatchPrefetcher, GivesWhatIsAskedForInAnyOrder)
{
    BatchPrefetcher ahead(numbered, 6);
    TokenBatch batch;
    // In turn, twice, back, on, far ahead, another size: as a stage with two chunks or a second run might ask.
    const std::pair<std::int64_t, std::int64_t> asked[] = {{2, 2},  {8, 2},   {14, 2}, {2, 2},  {8, 2},
                                                           {20, 2}, {14, 2},  {26, 2}, {60, 2}, {66, 2},
                                                           {66, 1}, {100, 1}, {3, 1}};
    for (const auto& one : asked)
    {
        ahead.get(one.first, one.second, batch);
        EXPECT_EQ(batch.inputs, std::vector<std::int64_t>{one.first});
        EXPECT_EQ(batch.num, one.second);
    }
    EXPECT_EQ(ahead.num_ahead(), 5) << "8, 14, 20, 26, 66";
}

TEST(BatchPrefetcher, HasTheNextBatchesReadyAndNoMore)
{
    std::atomic<int> reads{0};
    BatchPrefetcher ahead(
        [&](std::int64_t first, std::int64_t num, TokenBatch& batch)
        {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            numbered(first, num, batch);
            ++reads;
        },
        1);
    TokenBatch batch;
    ahead.get(0, 1, batch);
    EXPECT_GE(ahead.take_waited_seconds(), 0.005);
    for (int i = 0; i < 400 && reads < 5; ++i) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ(reads, 1 + static_cast<int>(BatchPrefetcher::depth));
    for (std::int64_t position = 1; position <= 4; ++position) { ahead.get(position, 1, batch); }
    EXPECT_EQ(ahead.num_ahead(), 4);
    ahead.take_waited_seconds();
    EXPECT_EQ(ahead.take_waited_seconds(), 0);
}

TEST(BatchPrefetcher, AnErrorComesWithItsOwnBatch)
{
    BatchPrefetcher ahead(
        [](std::int64_t first, std::int64_t num, TokenBatch& batch)
        {
            VALIDATE(first != 3, FormatError, "damaged");
            numbered(first, num, batch);
        },
        1);
    TokenBatch batch;
    for (const std::int64_t position : {0, 1, 2}) { ahead.get(position, 1, batch); }
    EXPECT_THROW(ahead.get(3, 1, batch), FormatError);
    ahead.get(4, 1, batch);
    EXPECT_EQ(batch.inputs[0], 4);
}

TEST(BatchPrefetcher, EndsWhileTheThreadReads)
{
    for (int i = 0; i < 20; ++i)
    {
        BatchPrefetcher ahead(numbered, 1);
        TokenBatch batch;
        ahead.get(i, 1, batch);
    }
}

}  // namespace plimsoll
