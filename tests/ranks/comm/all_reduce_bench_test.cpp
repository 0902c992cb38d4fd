#include "comm/all_reduce_bench.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "comm/thread_communicator.hpp"
#include "support/buffer_view.hpp"

using namespace plimsoll;
using plimsoll::testing::view_of;

namespace
{

AllReduceBench short_bench(std::int64_t count, Dtype dtype = Dtype::f32)
{
    AllReduceBench bench;
    bench.count = count;
    bench.dtype = dtype;
    bench.warmup = 2;
    bench.iterations = 5;
    bench.min_seconds = 0;
    return bench;
}

/// Passes everything on, and spoils the result of chosen all-reduces of floats on this rank.
class SpoilingCommunicator : public Communicator
{
  public:
    SpoilingCommunicator(Communicator& real, std::vector<std::int64_t> spoiled, std::int64_t element, float value)
        : real_(real),
          spoiled_(std::move(spoiled)),
          element_(element),
          value_(value)
    {
    }
    std::string name() const override { return real_.name(); }
    std::int64_t rank() const override { return real_.rank(); }
    std::int64_t size() const override { return real_.size(); }
    Work all_reduce(BufferView data, ReduceOp op, Stream& stream) override
    {
        Work work = real_.all_reduce(data, op, stream);
        if (data.dtype != Dtype::f32 || op != ReduceOp::sum) { return work; }
        work.synchronize();
        for (const std::int64_t call : spoiled_)
        {
            if (call == calls_) { static_cast<float*>(data.data)[element_] = value_; }
        }
        ++calls_;
        return Work();
    }
    Work reduce_scatter(BufferView input, BufferView output, Stream& stream) override
    {
        return real_.reduce_scatter(input, output, stream);
    }
    Work all_gather(BufferView input, BufferView output, Stream& stream) override
    {
        return real_.all_gather(input, output, stream);
    }
    Work broadcast(BufferView data, std::int64_t root, Stream& stream) override
    {
        return real_.broadcast(data, root, stream);
    }
    void barrier() override { real_.barrier(); }
    Work send(BufferView data, std::int64_t peer, Stream& stream) override { return real_.send(data, peer, stream); }
    Work recv(BufferView data, std::int64_t peer, Stream& stream) override { return real_.recv(data, peer, stream); }
    std::unique_ptr<Communicator> subgroup(std::string name, const std::vector<std::int64_t>& ranks) override
    {
        return real_.subgroup(std::move(name), ranks);
    }

  private:
    Communicator& real_;
    std::vector<std::int64_t> spoiled_;
    std::int64_t element_;
    float value_;
    std::int64_t calls_ = 0;
};

/// Rank 1 is held up behind every all-reduce of floats, inside its own time.
class SlowCommunicator : public SpoilingCommunicator
{
  public:
    explicit SlowCommunicator(Communicator& real) : SpoilingCommunicator(real, {}, 0, 0) {}
    Work all_reduce(BufferView data, ReduceOp op, Stream& stream) override
    {
        Work work = SpoilingCommunicator::all_reduce(data, op, stream);
        if (rank() == 1 && data.dtype == Dtype::f32) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }
        return work;
    }
};

}  // namespace

TEST(ExactPattern, ValuesAreSmallWholeNumbersThatDifferBetweenPlaces)
{
    const ExactPattern pattern(8);
    std::vector<float> data(10000);
    pattern.fill(3, view_of(data));
    std::int64_t same_as_next = 0;
    for (std::size_t k = 0; k < data.size(); ++k)
    {
        EXPECT_EQ(data[k], pattern.value(3, static_cast<std::int64_t>(k)));
        EXPECT_EQ(data[k], std::floor(data[k]));
        EXPECT_TRUE(data[k] >= 4 && data[k] <= 64);
        same_as_next += k > 0 && data[k] == data[k - 1] ? 1 : 0;
    }
    EXPECT_LT(same_as_next, 1000) << "a shift by one element shows";
    EXPECT_NE(pattern.value(0, 5), pattern.value(1, 5));
}

TEST(ExactPattern, EveryWrongElementIsCounted)
{
    const ExactPattern pattern(3);
    std::vector<float> sum(9001);
    for (std::size_t k = 0; k < sum.size(); ++k)
    {
        for (int rank = 0; rank < 3; ++rank)
        {
            sum[k] += static_cast<float>(pattern.value(rank, static_cast<std::int64_t>(k)));
        }
    }
    EXPECT_EQ(pattern.count_wrong(view_of(sum)), 0);
    sum[0] += 1;
    sum[4093] = std::nanf("");
    sum[9000] = std::nextafter(sum[9000], 0.0F);
    EXPECT_EQ(pattern.count_wrong(view_of(sum)), 3);
}

TEST(ExactPattern, SumsAreExactUpToTheLargestWorld)
{
    const ExactPattern pattern(131072);
    // 16 x the sum of the weights 1..8 over all ranks stays below 2^24.
    EXPECT_LT(16 * 131072 * 4.5, 16777216);
    std::vector<float> sum(1, static_cast<float>(pattern.value(0, 0) * 131072 * 4.5));
    EXPECT_EQ(pattern.count_wrong(view_of(sum)), 0);
    EXPECT_THROW(ExactPattern(131073), InternalError);
    EXPECT_THROW(ExactPattern(0), InternalError);
}

TEST(AllReduceBench, MeasuresAndVerifiesOnAnyNumberOfRanks)
{
    for (const std::int64_t ranks : {1, 2, 3, 4})
    {
        for (const Dtype dtype : {Dtype::f32, Dtype::f64})
        {
            run_ranks(ranks,
                      [&](Communicator& world)
                      {
                          const AllReduceResult result = bench_all_reduce(world, short_bench(10007, dtype));
                          EXPECT_EQ(result.seconds.size(), 5U);
                          EXPECT_EQ(result.wrong, 0);
                          EXPECT_EQ(result.verified_iterations, 7);
                          EXPECT_EQ(result.ranks, ranks);
                          EXPECT_EQ(static_cast<std::int64_t>(result.slowest_counts.size()), ranks);
                          EXPECT_GT(result.algorithm_bandwidth(), 0);
                          EXPECT_DOUBLE_EQ(result.bus_bandwidth(), result.algorithm_bandwidth() * 2 *
                                                                       static_cast<double>(ranks - 1) /
                                                                       static_cast<double>(ranks));
                      });
        }
    }
}

TEST(AllReduceBench, AllRanksGetTheSameResult)
{
    std::mutex mutex;
    std::vector<std::vector<double>> seconds;
    AllReduceBench bench = short_bench(64);
    bench.min_seconds = 0.01;
    run_ranks(3,
              [&](Communicator& world)
              {
                  const AllReduceResult result = bench_all_reduce(world, bench);
                  const std::lock_guard<std::mutex> lock(mutex);
                  seconds.push_back(result.seconds);
              });
    EXPECT_EQ(seconds[0], seconds[1]);
    EXPECT_EQ(seconds[0], seconds[2]);
}

TEST(AllReduceBench, OneWrongElementOfOneRankIsCountedOnce)
{
    run_ranks(3,
              [](Communicator& real)
              {
                  SpoilingCommunicator world(real,
                                             real.rank() == 2 ? std::vector<std::int64_t>{4}
                                                              : std::vector<std::int64_t>{},
                                             77, 0.5F);
                  EXPECT_EQ(bench_all_reduce(world, short_bench(1000)).wrong, 1);
              });
}

TEST(AllReduceBench, AWrongWarmUpCountsToo)
{
    run_ranks(2,
              [](Communicator& real)
              {
                  SpoilingCommunicator world(real, {0, 6}, 0, std::nanf(""));
                  EXPECT_EQ(bench_all_reduce(world, short_bench(1000)).wrong, 4) << "two iterations of two ranks";
              });
}

TEST(AllReduceBench, WithoutVerificationNothingIsCounted)
{
    run_ranks(2,
              [](Communicator& real)
              {
                  SpoilingCommunicator world(real, {3}, 0, 0.5F);
                  AllReduceBench bench = short_bench(10);
                  bench.verification = Verification::none;
                  const AllReduceResult result = bench_all_reduce(world, bench);
                  EXPECT_EQ(result.wrong, 0);
                  EXPECT_EQ(result.verified_iterations, 0);
              });
}

TEST(AllReduceBench, TheSlowestRankCountsAndIsNamed)
{
    run_ranks(3,
              [](Communicator& real)
              {
                  SlowCommunicator world(real);
                  const AllReduceResult result = bench_all_reduce(world, short_bench(10));
                  EXPECT_GE(result.times().minimum, 0.03) << "the largest time of all ranks counts";
                  EXPECT_EQ(slowest_rank(result.slowest_counts).rank, 1);
                  EXPECT_FALSE(slowest_rank(result.slowest_counts).even);
              });
}

TEST(AllReduceBench, IteratesForTheTimeAskedAndNoMoreThanAllowed)
{
    run_ranks(2,
              [](Communicator& world)
              {
                  AllReduceBench bench = short_bench(16);
                  bench.min_seconds = 1000;
                  bench.max_iterations = 40;
                  EXPECT_EQ(bench_all_reduce(world, bench).seconds.size(), 40U);
                  bench.iterations = 50;
                  EXPECT_EQ(bench_all_reduce(world, bench).seconds.size(), 50U) << "as many as asked for";
              });
}

TEST(AllReduceBench, TheVerdictCountsWhatWasWrong)
{
    AllReduceResult good, bad;
    good.verified_iterations = bad.verified_iterations = 3;
    bad.wrong = 1;
    EXPECT_EQ(all_reduce_verdict({good, good}), "ok");
    EXPECT_EQ(all_reduce_verdict({bad}), "FAILED, 1 wrong element in 1 of 1 size");
    EXPECT_EQ(all_reduce_verdict({good, bad, bad}), "FAILED, 2 wrong elements in 2 of 3 sizes");
    good.verified_iterations = 0;
    EXPECT_EQ(all_reduce_verdict({good}), "ok (not verified)");
}

// 4 ranks, 1 MB in 1 ms each: algbw 1 GB/s, busbw 1.5 GB/s.
TEST(AllReduceBench, BandwidthIsAtTheMedianTime)
{
    AllReduceResult result;
    result.bench.count = 250000;
    result.ranks = 4;
    result.seconds = {1e-3, 9e-3, 1e-3, 1e-3, 0.5e-3};
    EXPECT_DOUBLE_EQ(result.algorithm_bandwidth(), 1e9);
    EXPECT_DOUBLE_EQ(result.bus_bandwidth(), 1.5e9);
    result.bench.dtype = Dtype::f64;
    result.ranks = 3;
    EXPECT_DOUBLE_EQ(result.algorithm_bandwidth(), 2e9);
    EXPECT_DOUBLE_EQ(result.bus_bandwidth(), 2e9 * 4 / 3);
}

TEST(AllReduceBench, APeerIsMeasuredInTurns)
{
    run_ranks(2,
              [](Communicator& world)
              {
                  std::int64_t calls = 0;
                  AllReduceBench bench = short_bench(100);
                  bench.peer = [&](BufferView data)
                  {
                      Stream stream;
                      world.all_reduce(data, ReduceOp::sum, stream).synchronize();
                      if (world.rank() == 1) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }
                      ++calls;
                  };
                  const AllReduceResult result = bench_all_reduce(world, bench);
                  EXPECT_EQ(calls, 7) << "warm-up and iterations";
                  ASSERT_EQ(result.peer_seconds.size(), result.seconds.size());
                  EXPECT_GE(result.peer_times().minimum, 0.005) << "the slowest rank's, on every rank";
                  EXPECT_EQ(result.wrong, 0);
              });
}
