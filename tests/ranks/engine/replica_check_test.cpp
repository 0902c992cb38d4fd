// ReplicaCheck over thread ranks: equal copies pass, each kind of copy that differs is found, by its tensor and ranks.

#include "engine/replica_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "comm/thread_communicator.hpp"
#include "ranks/engine/small_qwen3.hpp"

using namespace plimsoll;

namespace
{

ParallelLayout sharded_layout(std::int64_t dp, std::int64_t tp, std::int64_t pp, int zero = 0)
{
    ParallelLayout layout;
    layout.dp = dp;
    layout.tp = tp;
    layout.pp = pp;
    layout.zero_stage = zero;
    layout.resident_bytes = 0;
    layout.global_batch = dp;
    return layout;
}

/// The parameters of one rank; equal boxes have equal values.
class RankParams
{
  public:
    explicit RankParams(const FlatLayout& flat) : flat_(flat)
    {
        for (const FlatUnit& unit : flat.units)
        {
            std::vector<float> values(static_cast<std::size_t>(unit.num_elements), 0.0F);
            for (const FlatTensor& tensor : unit.tensors)
            {
                const std::string box = fmt::format("{} {}", tensor.spec.name, fmt::join(tensor.box.offset, ","));
                const CounterRng rng(1, RngPurpose::test, hash_name(box));
                for (std::int64_t i = 0; i < tensor.box.num_elements(); ++i)
                {
                    values[static_cast<std::size_t>(tensor.offset + i)] = static_cast<float>(rng.uniform(static_cast<std::uint64_t>(i)));
                }
            }
            buffers_.push_back(std::move(values));
        }
    }

    /// Changes the last bit of one element.
    void corrupt(const std::string& name)
    {
        for (std::size_t u = 0; u < flat_.units.size(); ++u)
        {
            for (const FlatTensor& tensor : flat_.units[u].tensors)
            {
                if (tensor.spec.name != name) { continue; }
                float& value = buffers_[u][static_cast<std::size_t>(tensor.offset + tensor.box.num_elements() - 1)];
                value = std::nextafter(value, 2.0F);
                return;
            }
        }
        ADD_FAILURE() << "this rank has no " << name;
    }

    /// This dp rank's shard of the unit.
    HeldParams shard(std::int64_t unit, std::int64_t dp_rank)
    {
        const std::int64_t elements = flat_.units[static_cast<std::size_t>(unit)].shard_elements;
        HeldParams params = held(unit);
        params.begin = dp_rank * elements;
        params.values = params.values.slice(params.begin, elements);
        return params;
    }

    HeldParams held(std::int64_t unit)
    {
        HeldParams params;
        std::vector<float>& values = buffers_[static_cast<std::size_t>(unit)];
        params.values.data = values.data();
        params.values.count = static_cast<std::int64_t>(values.size());
        return params;
    }

  private:
    const FlatLayout& flat_;
    std::vector<std::vector<float>> buffers_;
};

/// What every rank threw; all must be alike.
std::string outcome(const ParallelLayout& layout, const std::function<void(std::int64_t rank, RankParams& params)>& edit)
{
    std::mutex mutex;
    std::vector<std::string> texts;
    run_ranks(layout.world(),
              [&](Communicator& world)
              {
                  const ModelSpec spec = plimsoll::testing::small_qwen3();
                  RankGroups groups = make_rank_groups(world, layout, spec.kv_heads);
                  const FlatLayout flat = make_flat_layout(spec, layout, groups.coordinate, 4);
                  RankParams params(flat);
                  edit(world.rank(), params);
                  ReplicaCheck check(flat, layout, groups);
                  Stream stream;
                  std::string text;
                  try
                  {
                      const auto held = [&](std::int64_t unit)
                      { return layout.zero_stage < 3 ? params.held(unit) : params.shard(unit, groups.dp->rank()); };
                      check.run(20, held, stream);
                  }
                  catch (const NumericError& error)
                  {
                      EXPECT_EQ(error.exit_code(), ExitCode::fatal);
                      text = error.text();
                  }
                  const std::lock_guard<std::mutex> lock(mutex);
                  texts.push_back(text);
              });
    for (const std::string& text : texts) { EXPECT_EQ(text, texts.front()); }
    return texts.front();
}

std::string message(const std::string& what, const std::string& others = "")
{
    return what + " at step 20" + others +
           " (parameters are no longer those of one model: a broken device, or a fault of this program). resume the last "
           "checkpoint, on other nodes";
}

}  // namespace

TEST(ReplicaCheck, EqualCopiesPassInEveryLayout)
{
    for (const ParallelLayout& layout : {sharded_layout(1, 1, 1), sharded_layout(3, 1, 1), sharded_layout(1, 4, 1), sharded_layout(1, 1, 3),
                                         sharded_layout(2, 2, 2), sharded_layout(1, 4, 2)})
    {
        EXPECT_EQ(outcome(layout, [](std::int64_t, RankParams&) {}), "");
    }
}

TEST(ReplicaCheck, NamesTheDataParallelRankThatIsAlone)
{
    const auto edit = [](std::int64_t rank, RankParams& params)
    {
        if (rank == 2) { params.corrupt("layers.1.attn.k_proj.weight"); }
    };
    EXPECT_EQ(outcome(sharded_layout(4, 1, 1), edit),
              message("data parallel copies of 'layers.1.attn.k_proj.weight' differ, rank 2 from ranks 0 1 3"));
}

TEST(ReplicaCheck, NamesATensorThatTpDoesNotCut)
{
    const auto edit = [](std::int64_t rank, RankParams& params)
    {
        if (rank != 1) { return; }
        params.corrupt("layers.0.mlp_norm.weight");
        params.corrupt("layers.2.attn.q_norm.weight");
    };
    EXPECT_EQ(outcome(sharded_layout(1, 2, 1), edit),
              message("tensor parallel copies of 'layers.0.mlp_norm.weight' differ, rank 1 from rank 0 (and of 1 more)"));
}

TEST(ReplicaCheck, NamesSharedKeyValueHeads)
{
    // Ranks 2 and 3 share the second head.
    const auto edit = [](std::int64_t rank, RankParams& params)
    {
        if (rank == 3) { params.corrupt("layers.0.attn.v_proj.weight"); }
    };
    EXPECT_EQ(outcome(sharded_layout(1, 4, 1), edit),
              message("shared KV head copies of 'layers.0.attn.v_proj.weight' differ, rank 3 from rank 2"));
}

TEST(ReplicaCheck, NamesTheTwoStagesOfATiedEmbedding)
{
    const auto edit = [](std::int64_t rank, RankParams& params)
    {
        if (rank == 2) { params.corrupt("embed_tokens.weight"); }
    };
    EXPECT_EQ(outcome(sharded_layout(1, 1, 3), edit),
              message("tied embedding copies of 'embed_tokens.weight' differ, rank 2 from rank 0"));
}

TEST(ReplicaCheck, EveryRankHearsOfAFaultInAnotherGroup)
{
    // A norm on one of eight ranks: its dp pair and its tp pair see it.
    const auto edit = [](std::int64_t rank, RankParams& params)
    {
        if (rank == 7) { params.corrupt("final_norm.weight"); }
    };
    const std::string text = outcome(sharded_layout(2, 2, 2), edit);
    EXPECT_NE(text.find("'final_norm.weight' differ, rank 7 from rank"), std::string::npos) << text;
    EXPECT_NE(text.find("in other groups"), std::string::npos) << text;
}

TEST(ReplicaCheck, ATensorThatTpCutsHasNoCopies)
{
    const auto edit = [](std::int64_t rank, RankParams& params)
    {
        if (rank == 1) { params.corrupt("layers.0.mlp.up_proj.weight"); }
    };
    EXPECT_EQ(outcome(sharded_layout(1, 2, 1), edit), "");
}

TEST(ReplicaCheck, ShardsOfParametersAreComparedWhereTheyAreCopies)
{
    // Rank 2 is (dp 1, tp 0): the last norm lies in the shard of dp rank 0 or 1, and one of them sees it.
    EXPECT_EQ(outcome(sharded_layout(2, 2, 1, 3), [](std::int64_t, RankParams&) {}), "");
    std::string seen;
    for (const std::int64_t corrupt : {0, 2})
    {
        seen += outcome(sharded_layout(2, 2, 1, 3),
                        [&](std::int64_t rank, RankParams& params)
                        {
                            if (rank == corrupt) { params.corrupt("final_norm.weight"); }
                        });
    }
    EXPECT_EQ(seen, message("tensor parallel copies of 'final_norm.weight' differ, rank 1 from rank 0"));
}
