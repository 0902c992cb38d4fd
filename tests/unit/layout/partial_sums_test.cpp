#include "layout/partial_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "layout/collective_cost.hpp"

using namespace plimsoll;

namespace
{

/// Head norms, 2 KV heads, positions by rotation: partial sums over tp and over sharers.
ModelSpec shared_heads_model()
{
    return parse_model_spec(R"({"model_type":"qwen3","vocab_size":37,"hidden_size":16,"intermediate_size":24,
        "num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":4,"max_position_embeddings":64,
        "rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":false})", "test");
}

ParallelLayout tp_layout(std::int64_t tp, bool sequence_parallel, std::int64_t dp = 1, int zero = 0)
{
    ParallelLayout layout;
    layout.dp = dp;
    layout.tp = tp;
    layout.zero_stage = zero;
    layout.sequence_parallel = sequence_parallel;
    layout.global_batch = dp;
    return layout;
}

std::vector<PartialSum> sums_of(const ModelSpec& model, const ParallelLayout& layout, std::int64_t dp_rank = 0)
{
    MeshCoordinate coordinate;
    coordinate.index[static_cast<std::size_t>(MeshAxis::dp)] = dp_rank;
    return partial_sums(make_flat_layout(model, layout, coordinate, 4), layout, coordinate);
}

}  // namespace

TEST(PartialSums, OneRankHasNone)
{
    EXPECT_TRUE(sums_of(shared_heads_model(), tp_layout(1, true)).empty());
    EXPECT_EQ(partial_sum_room({}), 0);
}

TEST(PartialSums, SmallOnesTravelTogetherOnePerGroup)
{
    const auto elements = [](const std::vector<PartialSum>& sums)
    {
        std::map<std::int64_t, std::int64_t> by_group;
        for (const PartialSum& sum : sums) { by_group[sum.ranks] += sum.num_elements(); }
        return by_group;
    };
    using ByGroup = std::map<std::int64_t, std::int64_t>;
    const std::int64_t head_norms = 3 * 2 * 4, norms = (3 * 2 + 1) * 16, key_value = 3 * 2 * 4 * 16;
    const std::vector<PartialSum> plain = sums_of(shared_heads_model(), tp_layout(4, false));
    EXPECT_EQ(plain.size(), 2U);
    EXPECT_EQ(elements(plain), (ByGroup{{4, head_norms}, {2, key_value}}));
    const std::vector<PartialSum> cut = sums_of(shared_heads_model(), tp_layout(4, true));
    EXPECT_EQ(cut.size(), 2U);
    EXPECT_EQ(elements(cut), (ByGroup{{4, head_norms + norms}, {2, key_value}}));
    EXPECT_EQ(partial_sum_room(cut), std::max(head_norms + norms, key_value));
}

TEST(PartialSums, ALargeOneGoesByItself)
{
    ModelSpec model = parse_model_spec(R"({"model_type":"gpt2","vocab_size":37,"n_embd":64,"n_layer":2,"n_head":4,"n_positions":1024,
        "layer_norm_epsilon":1e-5,"activation_function":"gelu_new"})", "test");
    ASSERT_EQ(1024 * 64 * 4, collective_small_bytes);  // the table of positions
    const std::vector<PartialSum> sums = sums_of(model, tp_layout(2, true));
    ASSERT_EQ(sums.size(), 2U);
    EXPECT_EQ(sums[0].ranges.size(), 1U);
    EXPECT_EQ(sums[0].num_elements(), 1024 * 64);
    // Two norms with two vectors each and the biases of two row-parallel products per layer; the last norm.
    EXPECT_EQ(sums[1].num_elements(), 2 * (2 * 2 + 2) * 64 + 2 * 64);
    EXPECT_EQ(partial_sum_room(sums), sums[1].num_elements());
}

TEST(PartialSums, ShardsHaveTheirOwnPartsOfEach)
{
    for (const std::int64_t tp : {2, 4})
    {
        const std::vector<PartialSum> whole = sums_of(shared_heads_model(), tp_layout(tp, true, 3));
        std::map<std::int64_t, std::set<std::pair<std::size_t, std::int64_t>>> once;
        for (std::int64_t rank = 0; rank < 3; ++rank)
        {
            for (const PartialSum& sum : sums_of(shared_heads_model(), tp_layout(tp, true, 3, 1), rank))
            {
                for (const PartialRange& range : sum.ranges)
                {
                    for (std::int64_t i = range.begin; i < range.end; ++i)
                    {
                        EXPECT_TRUE(once[sum.ranks].insert({range.unit, i}).second);
                    }
                }
            }
        }
        for (const PartialSum& sum : whole) { EXPECT_EQ(static_cast<std::int64_t>(once[sum.ranks].size()), sum.num_elements()); }
        EXPECT_EQ(once.size(), whole.size());
    }
}
