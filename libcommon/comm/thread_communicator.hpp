#pragma once
/// Ranks as threads of one process: the back end of tests, and of runs without a launcher.
///
///     run_ranks(4, [](Communicator& world)
///     {
///         Stream stream;
///         std::vector<float> x(1000, static_cast<float>(world.rank()));
///         BufferView view;
///         view.data = x.data();
///         view.count = 1000;
///         world.all_reduce(view, ReduceOp::sum, stream).synchronize();     // 0 + 1 + 2 + 3 everywhere
///     });
///
/// Ranks read each other's buffers directly: no copies, no scratch. An operation moves forward while its ranks wait for
/// anything or call progress().

#include <cstdint>
#include <functional>
#include <string>

#include "comm/communicator.hpp"
#include "comm/rank_activity.hpp"

namespace plimsoll
{

struct RankOptions
{
    double watchdog_s = 300;                 ///< seconds without progress in a group that end a wait; see comm/watchdog.hpp
    std::string status_directory;            ///< where each rank keeps rank_<number>.status; empty: none
    std::shared_ptr<RankBoard> board;        ///< of at least `n` slots, to look at from outside; null: an own one
};

/// Runs `body` on `n` threads, each with its own world communicator named "world", and returns when all have ended. When a
/// rank throws, all others get CommError from what they wait in or call next; the first failure is thrown again as its own
/// type, an Error with the context "rank 2 (step 7, in all_reduce of 'tp' #31)". @pre n >= 1
/// @throws what a rank threw first; InternalError when a rank leaves an operation that it did not wait for
void run_ranks(std::int64_t n, const std::function<void(Communicator& world)>& body, const RankOptions& options = {});

}  // namespace plimsoll
