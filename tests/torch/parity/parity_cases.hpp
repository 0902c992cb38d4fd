#pragma once
// The layouts of the parity tests, and one of them against one rank over threads.

#include "comm/delayed_communicator.hpp"
#include "comm/thread_communicator.hpp"
#include "torch/parity/parity_support.hpp"

namespace plimsoll::test
{

struct Case
{
    const char* model;
    std::int64_t dp, tp, pp, accumulation;
    int zero;
    std::int64_t dp_shard = 0;
    const char* schedule = "1f1b";
    const char* split = "even";
};

inline std::string text_of(const Case& c)
{
    return fmt::format("{} dp {} tp {} pp {} {} split {} accumulation {} zero {} dp-shard {}", c.model, c.dp, c.tp, c.pp, c.schedule,
                       c.split, c.accumulation, c.zero, c.dp_shard);
}

inline ParallelLayout layout_of(const Case& c)
{
    ParallelLayout layout = parity_layout(c.dp, c.tp, c.pp, c.accumulation, c.zero);
    layout.dp_shard = c.dp_shard;
    layout.schedule = parse_pipeline_kind(c.schedule);
    layout.split = parse_stage_split(c.split);
    return layout;
}

inline ModelSpec spec_of(const std::string& name)
{
    if (name == "gpt2") { return parity_gpt2(); }
    if (name == "llama-gqa") { return parity_llama(4); }
    if (name == "llama-mha") { return parity_llama(8); }
    if (name == "llama-tied") { return parity_llama(2, true); }
    return parity_qwen3(2);
}

/// The ZeRO stages take turns.
inline std::vector<Case> every_layout(const char* model, std::int64_t world)
{
    std::vector<Case> cases;
    for (std::int64_t tp = 1; tp <= world; tp *= 2)
    {
        for (std::int64_t pp = 1; tp * pp <= world; pp *= 2)
        {
            for (const std::int64_t accumulation : {1, 3})
            {
                const int zero = static_cast<int>((cases.size() / 2 + (accumulation == 3 ? 3 : 1)) % 4);
                cases.push_back({model, world / (tp * pp), tp, pp, accumulation, zero});
            }
        }
    }
    return cases;
}

enum class Waiting
{
    plain,
    delayed, ///< under DelayedCommunicator: a result read before its wait is NaN
};

inline void check_layout(const Case& c, at::ScalarType dtype, Waiting waiting, std::int64_t steps = parity_steps)
{
    SCOPED_TRACE(text_of(c) + (dtype == at::kDouble ? " fp64" : " fp32") + (waiting == Waiting::delayed ? " delayed" : ""));
    const ModelSpec spec = spec_of(c.model);
    const ParityRecord& expected = one_rank(c.model, spec, dtype, steps);
    const ParallelLayout layout = layout_of(c);
    ASSERT_TRUE(validate(layout, spec, layout.world()).empty());
    ParityRecord got;
    run_ranks(layout.world(),
              [&](Communicator& world)
              {
                  if (waiting == Waiting::plain)
                  {
                      parity_body(world, spec, layout, dtype, steps, got);
                      return;
                  }
                  const std::unique_ptr<Communicator> delayed = make_delayed_communicator(world);
                  parity_body(*delayed, spec, layout, dtype, steps, got);
              });
    expect_parity(got, expected, dtype);
}

}  // namespace plimsoll::test
