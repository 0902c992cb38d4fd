#pragma once
/// Measures and verifies all-reduces of one size.
///
/// Isolated: a barrier before each iteration, outside its time. Each rank takes its own time of the iteration; the largest of all
/// ranks counts. Nothing but durations is compared, so clocks need no common zero. In place, since that is what the
/// communicators offer; before each iteration the buffer is filled anew, outside the time.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/bench_statistics.hpp"
#include "comm/communicator.hpp"

namespace plimsoll
{

/// What each rank contributes, and what the sum must be: small whole numbers, so that any order of summation gives the same
/// bits, from a table of 4093 (a prime: parts that end up at a wrong place differ). Immutable.
class ExactPattern
{
  public:
    /// @pre 1 <= ranks <= 131072: beyond, fp32 would round
    explicit ExactPattern(std::int64_t ranks);

    /// Rank `rank`'s contribution. @pre f32 or f64 in host memory
    void fill(std::int64_t rank, const BufferView& data) const;
    /// Elements of `sum` that are not exactly the sum over all ranks.
    std::int64_t count_wrong(const BufferView& sum) const;

    /// Element `index` of rank `rank`'s contribution.
    double value(std::int64_t rank, std::int64_t index) const;

  private:
    std::vector<double> table_;
    double weights_ = 0;  ///< sum over the ranks
};

enum class Verification
{
    every_iteration,
    none
};

struct AllReduceBench
{
    std::int64_t count = 256;  ///< elements of a rank's buffer
    Dtype dtype = Dtype::f32;  ///< f32 or f64
    std::int64_t warmup = 5;
    std::int64_t iterations = 100;  ///< at least
    double min_seconds = 0.2;       ///< at least, over all iterations, as far as max_iterations allow
    std::int64_t max_iterations = 100000;
    Verification verification = Verification::every_iteration;
    /// Another way to sum over the same ranks, in place and blocking, that is measured in turns with ours; null: none.
    std::function<void(BufferView)> peer;

    std::int64_t bytes() const { return count * dtype_bytes(dtype); }
};

struct AllReduceResult
{
    AllReduceBench bench;
    std::int64_t ranks = 1;
    std::vector<double> seconds;               ///< of each iteration: of its slowest rank
    std::vector<std::int64_t> slowest_counts;  ///< iterations in which rank r took longest
    std::int64_t wrong = 0;                    ///< wrong elements over all iterations and ranks; 0 without verification
    std::int64_t verified_iterations = 0;      ///< warm-up included
    std::vector<double> peer_seconds;          ///< of the peer, as `seconds`; empty without one

    TimeFigures times() const { return time_figures(seconds); }
    /// @pre a peer was measured
    TimeFigures peer_times() const { return time_figures(peer_seconds); }
    /// Bytes per second at the median time.
    double algorithm_bandwidth() const;
    double bus_bandwidth() const { return algorithm_bandwidth() * all_reduce_bus_factor(ranks); }
};

/// Every rank calls it and gets the same result. @pre warmup >= 1, iterations >= 1, count >= 1
/// @throws OutOfMemory, CommError
AllReduceResult bench_all_reduce(Communicator& world, const AllReduceBench& bench);

/// "ok", "ok (not verified)", or "FAILED, 3 wrong elements in 2 of 17 sizes".
std::string all_reduce_verdict(const std::vector<AllReduceResult>& results);

}  // namespace plimsoll
