#include "nn/sharded_params.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "torch/model/small_run.hpp"

using namespace plimsoll;
using namespace plimsoll::nn;

namespace
{

ShardedParams make(at::ScalarType dtype, const ParallelLayout& layout = ParallelLayout(),
                   const MeshCoordinate& coordinate = MeshCoordinate())
{
    return ShardedParams(test::small_llama(), layout, coordinate, dtype, install_cpu_allocator());
}

}  // namespace

TEST(ShardedParams, ViewsAliasTheFlatBuffer)
{
    ShardedParams params = make(at::kFloat);
    at::Tensor view = params.view(FlatState::params, "layers.1.mlp.down_proj.weight");
    EXPECT_EQ(view.sizes().vec(), (std::vector<std::int64_t>{32, 48}));
    view.fill_(7);
    const FlatUnit& unit = params.flat().unit_of("layers.1.mlp.down_proj.weight");
    const FlatTensor& tensor = params.flat().tensor("layers.1.mlp.down_proj.weight");
    EXPECT_EQ(unit.name, "layers.1");
    EXPECT_EQ(params.buffer(FlatState::params, 2)[tensor.offset].item<float>(), 7.0F);
}

TEST(ShardedParams, FusedViewJoinsNeighbours)
{
    ShardedParams params = make(at::kFloat);
    params.initialize(1);
    const std::vector<std::string> names = {"layers.0.attn.q_proj.weight", "layers.0.attn.k_proj.weight",
                                            "layers.0.attn.v_proj.weight"};
    std::vector<at::Tensor> parts;
    for (const std::string& name : names) { parts.push_back(params.view(FlatState::params, name)); }
    EXPECT_TRUE(at::equal(params.fused_view(FlatState::params, names), at::cat(parts)));
    EXPECT_THROW(params.fused_view(FlatState::params, {names[0], names[2]}), InternalError);
}

TEST(ShardedParams, StartsZeroAndInitialisesByKind)
{
    ShardedParams params = make(at::kDouble);
    EXPECT_EQ(params.view(FlatState::params, "head.weight").abs().sum().item<double>(), 0);
    params.initialize(1);
    EXPECT_TRUE(at::equal(params.view(FlatState::params, "final_norm.weight"),
                          at::ones({32}, at::TensorOptions().dtype(at::kDouble))));
    const at::Tensor head = params.view(FlatState::params, "head.weight");
    EXPECT_NEAR(head.std().item<double>(), 0.02, 0.002);
    EXPECT_NEAR(head.mean().item<double>(), 0, 0.002);
}

TEST(ShardedParams, InitialWeightsDependOnSeedAndNameAlone)
{
    ShardedParams a = make(at::kDouble), b = make(at::kDouble), other = make(at::kDouble), narrow = make(at::kFloat);
    at::set_num_threads(1);
    a.initialize(5);
    at::set_num_threads(2);
    b.initialize(5);
    other.initialize(6);
    narrow.initialize(5);
    const char* name = "layers.0.mlp.up_proj.weight";
    EXPECT_TRUE(at::equal(a.view(FlatState::params, name), b.view(FlatState::params, name)));
    EXPECT_FALSE(at::equal(a.view(FlatState::params, name), other.view(FlatState::params, name)));
    EXPECT_FALSE(at::equal(a.view(FlatState::params, name), a.view(FlatState::params, "layers.1.mlp.up_proj.weight")));
    EXPECT_TRUE(at::equal(a.view(FlatState::params, name).to(at::kFloat), narrow.view(FlatState::params, name)));
}

TEST(ShardedParams, EveryTensorParallelSliceIsThatPartOfTheWhole)
{
    ShardedParams whole = make(at::kDouble);
    whole.initialize(5);
    ParallelLayout layout;
    layout.tp = 2;
    for (std::int64_t rank = 0; rank < 2; ++rank)
    {
        ShardedParams slice = make(at::kDouble, layout, DeviceMesh(layout).coordinate(rank));
        slice.initialize(5);
        for (const FlatUnit& unit : slice.flat().units)
        {
            for (const FlatTensor& tensor : unit.tensors)
            {
                at::Tensor expected = whole.view(FlatState::params, tensor.spec.name);
                at::Tensor got = slice.view(FlatState::params, tensor.spec.name);
                for (std::size_t d = 0; d < tensor.box.shape.size(); ++d)
                {
                    const auto dim = static_cast<std::int64_t>(d);
                    expected = expected.narrow(dim, tensor.box.offset[d], tensor.box.shape[d]);
                    got = got.narrow(dim, 0, tensor.box.shape[d]);
                }
                EXPECT_TRUE(at::equal(got, expected)) << tensor.spec.name << " of tp rank " << rank;
            }
        }
    }
}

TEST(ShardedParams, Bf16StartsFromTheSameValuesRoundedToEven)
{
    ShardedParams full = make(at::kFloat), rounded = make(at::kBFloat16);
    full.initialize(5);
    rounded.initialize(5);
    EXPECT_FALSE(full.keeps_master());
    ASSERT_TRUE(rounded.keeps_master());
    for (const char* name : {"embed_tokens.weight", "layers.1.mlp.down_proj.weight", "final_norm.weight"})
    {
        const at::Tensor exact = full.view(FlatState::params, name);
        EXPECT_EQ(rounded.view(FlatState::params, name).scalar_type(), at::kBFloat16);
        EXPECT_TRUE(at::equal(rounded.view(FlatState::master, name), exact)) << name;
        EXPECT_TRUE(at::equal(rounded.view(FlatState::params, name), exact.to(at::kBFloat16))) << name;
        EXPECT_TRUE(at::equal(full.view(FlatState::master, name), exact)) << name;
    }
    rounded.check_master();
    rounded.view(FlatState::params, "layers.1.mlp.down_proj.weight")[3][2].fill_(1);
    try
    {
        rounded.check_master();
        FAIL() << "a parameter that is not its master passed";
    }
    catch (const NumericError& error)
    {
        EXPECT_NE(std::string(error.what()).find("'layers.1.mlp.down_proj.weight' is no longer its fp32 master, rounded"),
                  std::string::npos)
            << error.what();
    }
    rounded.round_master();
    rounded.check_master();
}

TEST(ShardedParams, EveryZeroStageStartsFromTheSameMaster)
{
    ShardedParams whole = make(at::kBFloat16);
    whole.initialize(5);
    for (int zero = 1; zero <= 3; ++zero)
    {
        ParallelLayout layout;
        layout.dp = 2;
        layout.zero_stage = zero;
        layout.resident_bytes = 0;
        for (std::int64_t rank = 0; rank < 2; ++rank)
        {
            ShardedParams shard = make(at::kBFloat16, layout, DeviceMesh(layout).coordinate(rank));
            shard.initialize(5);
            for (std::int64_t u = 0; u < shard.num_units(); ++u)
            {
                // A shard of the padded unit, which is longer than the whole one's.
                const std::int64_t elements = shard.flat().units[static_cast<std::size_t>(u)].shard_elements;
                const at::Tensor expected = whole.buffer(FlatState::master, u);
                const std::int64_t begin = rank * elements, here = std::min(elements, expected.numel() - begin);
                if (here <= 0) { continue; }
                EXPECT_TRUE(at::equal(shard.owned(FlatState::master, u).narrow(0, 0, here), expected.narrow(0, begin, here)));
                EXPECT_TRUE(at::equal(shard.owned(FlatState::params, u).narrow(0, 0, here),
                                      expected.narrow(0, begin, here).to(at::kBFloat16)));
            }
            shard.check_master();
        }
    }
}

TEST(ShardedParams, CountsItsBytesByTag)
{
    MemoryTracker tracker;
    {
        const ShardedParams params(test::small_llama(), ParallelLayout(), MeshCoordinate(), at::kFloat, tracker);
        const std::int64_t bytes = params.flat().num_elements() * 4;
        EXPECT_EQ(tracker.current(MemoryTag::parameters), bytes);
        EXPECT_EQ(tracker.current(MemoryTag::gradients), bytes);
        EXPECT_EQ(tracker.current(MemoryTag::optimizer), 2 * bytes);
    }
    {
        const ShardedParams params(test::small_llama(), ParallelLayout(), MeshCoordinate(), at::kBFloat16, tracker);
        const std::int64_t elements = params.flat().num_elements();
        EXPECT_EQ(tracker.current(MemoryTag::parameters), 2 * elements);
        EXPECT_EQ(tracker.current(MemoryTag::gradients), 4 * elements);
        EXPECT_EQ(tracker.current(MemoryTag::optimizer), 12 * elements);
    }
    EXPECT_EQ(tracker.current(), 0);
}
