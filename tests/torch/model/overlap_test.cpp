// Messages under a link of high latency: how long a rank waits when they run beside its computation, and when they do not.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "comm/metered_communicator.hpp"
#include "comm/thread_communicator.hpp"
#include "support/latency_communicator.hpp"
#include "torch/model/small_run.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

constexpr std::chrono::milliseconds latency(20);

struct Waited
{
    double seconds = 0;         ///< in waits of rank 0
    std::int64_t messages = 0;
    double late() const { return static_cast<double>(messages) * std::chrono::duration<double>(latency).count(); }
};

ParallelLayout two_ranks(int zero, Prefetch prefetch = Prefetch::on)
{
    ParallelLayout layout;
    layout.dp = 2;
    layout.zero_stage = zero;
    layout.prefetch = prefetch;
    layout.bucket_bytes = 0;
    layout.resident_bytes = 0;
    layout.global_batch = 2;
    return layout;
}

/// body(groups, params) on both ranks; what rank 0 waited for in its dp group.
template<class Body>
Waited waited_by(const ParallelLayout& layout, const Body& body)
{
    ModelSpec model = parse_model_spec(R"({"model_type":"gpt2","vocab_size":37,"n_embd":32,"n_layer":6,"n_head":4,
        "n_positions":64,"layer_norm_epsilon":1e-5,"activation_function":"gelu_new"})", "test");
    Waited result;
    run_ranks(2,
              [&](Communicator& world)
              {
                  const c10::AutoGradMode no_autograd(false);
                  at::set_num_threads(1);
                  RankGroups groups = make_rank_groups(world, layout, model.kv_heads);
                  groups.dp = std::make_unique<plimsoll::testing::LatencyCommunicator>(std::move(groups.dp), latency);
                  CommunicationMeters meters(groups);
                  ShardedParams params(model, layout, groups.coordinate, at::kFloat, install_cpu_allocator());
                  params.initialize(9);
                  body(model, groups, params);
                  const CommunicationMeter meter = meters.take().at("dp");
                  if (world.rank() != 0) { return; }
                  result.seconds = meter.waited_seconds;
                  result.messages = meter.calls;
              });
    return result;
}

/// One step in which each use of a unit computes for longer than a message takes.
Waited waited_beside_long_computation(const ParallelLayout& layout)
{
    return waited_by(layout,
                     [&](const ModelSpec&, RankGroups& groups, ShardedParams& params)
                     {
                         Stream stream;
                         GradientReducer reducer(params.flat(), layout, groups);
                         const auto schedule = make_single_stage_schedule(1);
                         UnitOrder order(params.flat(), layout, uses_of_step(params.flat(), schedule, 0));
                         const std::size_t num_uses = order.num_uses();
                         UnitRunner units(params, reducer, std::move(order), stream);
                         for (std::size_t use = 0; use < num_uses; ++use)
                         {
                             units.before();
                             std::this_thread::sleep_for(latency + std::chrono::milliseconds(5));
                             units.after();
                         }
                         units.finish();
                     });
}

}  // namespace

TEST(Overlap, ReductionsOfAStepAreUnderWayTogether)
{
    // The whole trainer; its computation is far shorter than the latency. One after the other, the waits would be `late()`.
    for (const int zero : {0, 1})
    {
        const ParallelLayout layout = two_ranks(zero);
        const Waited waited = waited_by(
            layout,
            [&](const ModelSpec& model, RankGroups& groups, ShardedParams& params)
            {
                StepSettings settings;
                settings.seq_len = 16;
                settings.micro_batch = 1;
                settings.global_batch = 2;
                settings.schedule.kind = ScheduleKind::constant;
                settings.schedule.lr = 1e-3;
                settings.schedule.total_steps = 10;
                Model whole(model, params, settings.seq_len, 1);
                TrainStep step(whole, params, groups, settings,
                               [&](std::int64_t first, std::int64_t num, TokenBatch& batch)
                               { synthetic_samples(model.vocab, 16, first, num, batch); });
                StepTimes times;
                step.accumulate_gradients(1, 0, times);
                step.reduce_gradients();
            });
        EXPECT_GE(waited.messages, 8);
        EXPECT_LT(waited.seconds, 0.5 * waited.late()) << "zero " << zero << ", " << waited.messages << " messages";
    }
}

TEST(Overlap, ComputationHidesReductionsAndGathers)
{
    // Zero 1 and 2 reduce, zero 3 gathers too: one message is left at the end of the step, one at its beginning.
    for (const int zero : {1, 2, 3})
    {
        const Waited waited = waited_beside_long_computation(two_ranks(zero));
        EXPECT_GE(waited.messages, 8);
        EXPECT_LT(waited.seconds, 0.5 * waited.late()) << "zero " << zero << ", " << waited.messages << " messages";
    }
}

TEST(Overlap, WithoutPrefetchGathersAreWaitedFor)
{
    const Waited with = waited_beside_long_computation(two_ranks(3));
    const Waited without = waited_beside_long_computation(two_ranks(3, Prefetch::off));
    // The last layer stays over the head: it would be gathered again at once.
    EXPECT_EQ(with.messages + 1, without.messages);
    // 13 uses: six layers forward and backward, head; the embedding's forward too.
    EXPECT_GT(without.seconds, with.seconds + 8 * std::chrono::duration<double>(latency).count());
}
