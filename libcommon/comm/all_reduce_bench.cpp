#include "comm/all_reduce_bench.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "base/units.hpp"
#include "comm/operation_queue.hpp"
#include "mem/zeroed_memory.hpp"

namespace plimsoll
{

namespace
{

constexpr std::size_t table_size = 4093;
constexpr std::int64_t max_ranks = 131072;

double weight_of(std::int64_t rank) { return static_cast<double>(1 + rank % 8); }

template<class Element>
std::vector<Element> scaled(const std::vector<double>& table, double factor)
{
    std::vector<Element> values(table.size());
    for (std::size_t k = 0; k < table.size(); ++k) { values[k] = static_cast<Element>(table[k] * factor); }
    return values;
}

template<class Element>
void fill_with(const std::vector<Element>& block, const BufferView& data)
{
    auto* out = static_cast<Element*>(data.data);
    const auto size = static_cast<std::int64_t>(block.size());
    for (std::int64_t first = 0; first < data.count; first += size)
    {
        std::copy_n(block.data(), std::min(size, data.count - first), out + first);
    }
}

template<class Element>
std::int64_t count_different(const std::vector<Element>& block, const BufferView& data)
{
    const auto* in = static_cast<const Element*>(data.data);
    const auto size = static_cast<std::int64_t>(block.size());
    std::int64_t wrong = 0;
    for (std::int64_t first = 0; first < data.count; first += size)
    {
        const std::int64_t num = std::min(size, data.count - first);
        for (std::int64_t k = 0; k < num; ++k)
        {
            wrong += in[first + k] == block[static_cast<std::size_t>(k)] ? 0 : 1;  // NaN is wrong too
        }
    }
    return wrong;
}

void reduce(Communicator& world, void* data, Dtype dtype, std::int64_t count, ReduceOp op)
{
    BufferView view;
    view.data = data;
    view.dtype = dtype;
    view.count = count;
    Stream stream;
    world.all_reduce(view, op, stream).synchronize();
}

std::vector<std::int64_t> gather(Communicator& world, std::int64_t mine)
{
    std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()));
    BufferView input, output;
    input.data = &mine;
    output.data = all.data();
    input.dtype = output.dtype = Dtype::i64;
    input.count = 1;
    output.count = world.size();
    Stream stream;
    world.all_gather(input, output, stream).synchronize();
    return all;
}

/// One rank's part in the measurement of one size.
class Measurement
{
  public:
    Measurement(Communicator& world, const AllReduceBench& bench)
        : world_(world),
          bench_(bench),
          pattern_(world.size()),
          memory_(bench.bytes(), MemoryTag::communication, tracker_, "the buffer of the all-reduce")
    {
        view_.data = memory_.data();
        view_.dtype = bench.dtype;
        view_.count = bench.count;
    }

    /// Ours and the peer's, where there is one, in turns: who is first changes.
    void iterate(std::vector<double>& own, std::vector<double>& peer)
    {
        const bool peer_first = own.size() % 2 == 1;
        if (bench_.peer && peer_first) { peer.push_back(once_peer()); }
        own.push_back(once());
        if (bench_.peer && !peer_first) { peer.push_back(once_peer()); }
    }

    std::int64_t wrong() const { return wrong_; }
    std::int64_t verified() const { return verified_; }

  private:
    /// Seconds that this rank took.
    double once()
    {
        const double seconds =
            timed([this] { world_.all_reduce(view_, ReduceOp::sum, stream_).synchronize(); });
        if (bench_.verification == Verification::every_iteration)
        {
            wrong_ += pattern_.count_wrong(view_);
            ++verified_;
        }
        return seconds;
    }

    double once_peer()
    {
        return timed([this] { bench_.peer(view_); });
    }

    template<class Operation>
    double timed(const Operation& operation)
    {
        pattern_.fill(world_.rank(), view_);
        world_.barrier();
        const double begin = steady_now_seconds();
        operation();
        return steady_now_seconds() - begin;
    }

    Communicator& world_;
    const AllReduceBench& bench_;
    ExactPattern pattern_;
    MemoryTracker tracker_;
    ZeroedMemory memory_;
    BufferView view_;
    Stream stream_;
    std::int64_t wrong_ = 0;
    std::int64_t verified_ = 0;
};

/// The same on all ranks. The median of the warm-up: its first iterations are much slower than the rest.
std::int64_t iterations_of(Communicator& world, const AllReduceBench& bench, std::vector<double> warmup)
{
    reduce(world, warmup.data(), Dtype::f64, static_cast<std::int64_t>(warmup.size()), ReduceOp::max);
    const double each = std::max(percentile(warmup, 50), 1e-9);
    const double wanted = std::min(std::ceil(bench.min_seconds / each), static_cast<double>(bench.max_iterations));
    return std::max(bench.iterations, static_cast<std::int64_t>(wanted));
}

}  // namespace

ExactPattern::ExactPattern(std::int64_t ranks) : table_(table_size)
{
    EXPECT(ranks >= 1 && ranks <= max_ranks);
    for (std::size_t k = 0; k < table_size; ++k) { table_[k] = static_cast<double>(1 + mix64(k + 1) % 16); }
    for (std::int64_t rank = 0; rank < ranks; ++rank) { weights_ += weight_of(rank); }
}

double ExactPattern::value(std::int64_t rank, std::int64_t index) const
{
    return table_[static_cast<std::size_t>(index) % table_size] * weight_of(rank);
}

void ExactPattern::fill(std::int64_t rank, const BufferView& data) const
{
    EXPECT(data.dtype == Dtype::f32 || data.dtype == Dtype::f64);
    if (data.dtype == Dtype::f32) { fill_with(scaled<float>(table_, weight_of(rank)), data); }
    else { fill_with(scaled<double>(table_, weight_of(rank)), data); }
}

std::int64_t ExactPattern::count_wrong(const BufferView& sum) const
{
    EXPECT(sum.dtype == Dtype::f32 || sum.dtype == Dtype::f64);
    return sum.dtype == Dtype::f32 ? count_different(scaled<float>(table_, weights_), sum)
                                   : count_different(scaled<double>(table_, weights_), sum);
}

double AllReduceResult::algorithm_bandwidth() const
{
    return static_cast<double>(bench.bytes()) / percentile(seconds, 50);
}

AllReduceResult bench_all_reduce(Communicator& world, const AllReduceBench& bench)
{
    EXPECT(bench.warmup >= 1 && bench.iterations >= 1 && bench.count >= 1);
    Measurement measurement(world, bench);
    std::vector<double> own, peer;
    for (std::int64_t k = 0; k < bench.warmup; ++k) { measurement.iterate(own, peer); }
    const std::int64_t iterations = iterations_of(world, bench, own);
    own.clear();
    peer.clear();
    for (std::int64_t k = 0; k < iterations; ++k) { measurement.iterate(own, peer); }

    AllReduceResult result;
    result.bench = bench;
    result.ranks = world.size();
    result.seconds = own;
    reduce(world, result.seconds.data(), Dtype::f64, iterations, ReduceOp::max);
    if (bench.peer)
    {
        result.peer_seconds = peer;
        reduce(world, result.peer_seconds.data(), Dtype::f64, iterations, ReduceOp::max);
    }
    std::int64_t slowest = 0;
    for (std::size_t k = 0; k < own.size(); ++k) { slowest += own[k] >= result.seconds[k] ? 1 : 0; }
    result.slowest_counts = gather(world, slowest);
    for (const std::int64_t wrong : gather(world, measurement.wrong())) { result.wrong += wrong; }
    result.verified_iterations = measurement.verified();
    return result;
}

std::string all_reduce_verdict(const std::vector<AllReduceResult>& results)
{
    std::int64_t wrong = 0, sizes = 0;
    bool verified = true;
    for (const AllReduceResult& result : results)
    {
        wrong += result.wrong;
        sizes += result.wrong > 0 ? 1 : 0;
        verified = verified && result.verified_iterations > 0;
    }
    if (wrong == 0) { return verified ? "ok" : "ok (not verified)"; }
    return fmt::format("FAILED, {} wrong element{} in {} of {} size{}", format_grouped(wrong), wrong == 1 ? "" : "s",
                       sizes, results.size(), results.size() == 1 ? "" : "s");
}

}  // namespace plimsoll
