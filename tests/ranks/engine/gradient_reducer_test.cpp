// GradientReducer over thread ranks: sums, shards, tied pairs, shared KV heads, and what counts in the norm.

#include "engine/gradient_reducer.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/thread_communicator.hpp"
#include "ranks/engine/small_qwen3.hpp"
#include "support/buffer_view.hpp"

using namespace plimsoll;
using plimsoll::testing::view_of;

namespace
{

ParallelLayout layout_of(std::int64_t dp, std::int64_t tp, std::int64_t pp, int zero)
{
    ParallelLayout layout;
    layout.dp = dp;
    layout.tp = tp;
    layout.pp = pp;
    layout.zero_stage = zero;
    layout.global_batch = dp;
    return layout;
}

ParallelLayout with_shards(std::int64_t shards, ParallelLayout layout)
{
    layout.dp_shard = shards;
    return layout;
}

ParallelLayout with_cut_tokens(ParallelLayout layout)
{
    layout.sequence_parallel = true;
    return layout;
}

/// Calls visit(flat local index in the unit, name, linear index in the global tensor) for every real element of a unit.
template<class Visit>
void for_each_element(const FlatUnit& unit, const Visit& visit)
{
    for (const FlatTensor& tensor : unit.tensors)
    {
        const std::int64_t count = tensor.box.num_elements();
        for (std::int64_t i = 0; i < count; ++i)
        {
            std::int64_t rest = i, local = 0, global = 0, local_stride = 1, global_stride = 1;
            for (std::size_t d = tensor.box.shape.size(); d-- > 0;)
            {
                const std::int64_t index = rest % tensor.box.shape[d];
                rest /= tensor.box.shape[d];
                local += index * local_stride;
                global += (tensor.box.offset[d] + index) * global_stride;
                local_stride *= tensor.local_shape[d];
                global_stride *= tensor.spec.shape[d];
            }
            visit(tensor.offset + local, tensor.spec, global);
        }
    }
}

/// A gradient that every rank can name: small integers, so that sums are exact in any order.
double gradient(const std::string& name, std::int64_t element)
{
    return static_cast<double>((static_cast<std::int64_t>(name.size()) * 31 + element * 7) % 101 - 50);
}

struct Totals
{
    std::mutex mutex;
    double squares = 0;
    std::map<std::string, std::int64_t> counted; ///< elements in norm ranges, by tensor
};

/// Each rank brings its part of the gradient; afterwards it must hold `gradient` times the number of parts that there are.
void check_rank(Communicator& world, const ParallelLayout& layout, Totals& totals)
{
    const ModelSpec spec = plimsoll::testing::small_qwen3();
    RankGroups groups = make_rank_groups(world, layout, spec.kv_heads);
    const FlatLayout flat = make_flat_layout(spec, layout, groups.coordinate, 8);
    GradientReducer reducer(flat, layout, groups);
    Stream stream;
    std::vector<std::vector<double>> values;
    std::vector<BufferView> mine;
    for (std::size_t u = 0; u < flat.units.size(); ++u)
    {
        const auto number = static_cast<std::int64_t>(u);
        values.emplace_back(static_cast<std::size_t>(flat.units[u].num_elements));
        for_each_element(flat.units[u], [&](std::int64_t at, const TensorSpec& tensor, std::int64_t element)
                         { values[u][static_cast<std::size_t>(at)] = gradient(tensor.name, element); });
        const BufferView view = view_of(values[u]);
        reducer.start(number, view, stream);
        reducer.wait(number, stream);
        const UnitRange range = reducer.owned(number);
        mine.push_back(view.slice(range.begin, range.end - range.begin));
    }
    std::vector<double> room(static_cast<std::size_t>(reducer.room_elements()));
    reducer.finish(mine, view_of(room), stream);
    for (std::size_t u = 0; u < flat.units.size(); ++u)
    {
        const auto number = static_cast<std::int64_t>(u);
        const FlatUnit& unit = flat.units[u];
        const UnitRange range = reducer.owned(number);
        const bool pair = unit.kind == UnitKind::tied_embedding && layout.pp > 1;
        for_each_element(unit,
                         [&](std::int64_t at, const TensorSpec& tensor, std::int64_t element)
                         {
                             if (at < range.begin || at >= range.end) { return; }
                             const auto parts = static_cast<double>(
                                 layout.dp * partial_gradient_ranks(tensor.shard, layout.tp) * (pair ? 2 : 1));
                             EXPECT_EQ(values[u][static_cast<std::size_t>(at)], parts * gradient(tensor.name, element))
                                 << tensor.name << " element " << element << " on rank " << world.rank();
                         });
        const std::lock_guard<std::mutex> lock(totals.mutex);
        for (const UnitRange& counted : reducer.norm_ranges(number))
        {
            EXPECT_GE(counted.begin, range.begin);
            EXPECT_LE(counted.end, range.end);
            for_each_element(unit,
                             [&](std::int64_t at, const TensorSpec& tensor, std::int64_t)
                             { totals.counted[tensor.name] += at >= counted.begin && at < counted.end ? 1 : 0; });
        }
    }
}

}  // namespace

TEST(GradientReducer, SumsEveryPartOnceAndCountsEveryElementOnce)
{
    for (const ParallelLayout& layout :
         {layout_of(1, 1, 1, 0), layout_of(2, 1, 1, 0), layout_of(3, 1, 1, 1), layout_of(1, 2, 1, 0), layout_of(1, 4, 1, 0),
          layout_of(1, 1, 2, 0), layout_of(1, 1, 3, 0), layout_of(2, 4, 1, 1), layout_of(2, 2, 2, 1), layout_of(2, 1, 3, 1),
          layout_of(2, 2, 2, 0), with_shards(4, layout_of(8, 1, 1, 1)), with_shards(2, layout_of(4, 2, 1, 2)),
          with_shards(1, layout_of(2, 2, 2, 1)), with_shards(2, layout_of(4, 1, 2, 3)),
          // Norms are partial sums too then (training.md 5.7), whatever shares them out.
          with_cut_tokens(layout_of(1, 2, 1, 0)), with_cut_tokens(layout_of(2, 4, 1, 1)), with_cut_tokens(layout_of(2, 2, 2, 2)),
          with_cut_tokens(with_shards(2, layout_of(4, 2, 1, 3)))})
    {
        SCOPED_TRACE(layout_text(layout));
        Totals totals;
        run_ranks(layout.world(), [&](Communicator& world) { check_rank(world, layout, totals); });
        for (const TensorSpec& tensor : canonical_tensors(plimsoll::testing::small_qwen3()))
        {
            std::int64_t elements = 1;
            for (const std::int64_t extent : tensor.shape) { elements *= extent; }
            EXPECT_EQ(totals.counted[tensor.name], elements) << tensor.name;
        }
    }
}

TEST(GradientReducer, GathersShardsOfAllRanks)
{
    const ParallelLayout layout = layout_of(3, 1, 1, 1);
    run_ranks(3,
              [&](Communicator& world)
              {
                  RankGroups groups = make_rank_groups(world, layout, 2);
                  const FlatLayout flat = make_flat_layout(plimsoll::testing::small_qwen3(), layout, groups.coordinate, 8);
                  GradientReducer reducer(flat, layout, groups);
                  Stream stream;
                  for (std::size_t u = 0; u < flat.units.size(); ++u)
                  {
                      const UnitRange mine = reducer.owned(static_cast<std::int64_t>(u));
                      std::vector<double> values(static_cast<std::size_t>(flat.units[u].num_elements), -1);
                      for (std::int64_t i = mine.begin; i < mine.end; ++i) { values[static_cast<std::size_t>(i)] = double(i); }
                      BufferView view;
                      view.data = values.data();
                      view.dtype = Dtype::f64;
                      view.count = flat.units[u].num_elements;
                      reducer.start_gather(static_cast<std::int64_t>(u), view.slice(mine.begin, mine.end - mine.begin), view,
                                           stream);
                      reducer.wait_gather(static_cast<std::int64_t>(u), stream);
                      for (std::size_t i = 0; i < values.size(); ++i) { ASSERT_EQ(values[i], double(i)); }
                  }
              });
}
