#include "layout/flat_layout.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/rng.hpp"

namespace plimsoll
{
namespace
{

using Shape = std::vector<std::int64_t>;

Box box(Shape offset, Shape shape)
{
    Box b;
    b.offset = std::move(offset);
    b.shape = std::move(shape);
    return b;
}

ModelSpec small_llama()
{
    ModelSpec model;
    model.name = "small";
    model.family = "llama";
    model.vocab = 11;
    model.hidden = 6;
    model.layers = 2;
    model.heads = 3;
    model.kv_heads = 1;
    model.head_dim = 2;
    model.ffn = 10;
    model.max_positions = 16;
    return model;
}

ModelSpec small_gpt2()
{
    ModelSpec model = small_llama();
    model.family = "gpt2";
    model.heads = model.kv_heads = 4;
    model.hidden = 8;
    model.ffn = 32;
    model.norm = NormKind::layer_norm;
    model.position = PositionKind::learned;
    model.activation = Activation::gelu_tanh;
    model.qkv_bias = model.o_bias = model.mlp_bias = model.norm_bias = model.tied = true;
    return model;
}

ParallelLayout zero_layout(std::int64_t dp, std::int64_t tp, std::int64_t pp, int zero = 0)
{
    ParallelLayout layout;
    layout.dp = dp;
    layout.tp = tp;
    layout.pp = pp;
    layout.zero_stage = zero;
    layout.global_batch = dp;
    return layout;
}

MeshCoordinate at(std::int64_t tp, std::int64_t dp = 0, std::int64_t pp = 0)
{
    MeshCoordinate coordinate;
    coordinate.index = {{tp, 0, dp, pp}};
    return coordinate;
}

FlatLayout flat_of(const ModelSpec& model, const ParallelLayout& layout, const MeshCoordinate& coordinate)
{
    return make_flat_layout(model, layout, coordinate, 4);
}

std::vector<std::string> unit_names(const FlatLayout& flat)
{
    std::vector<std::string> names;
    for (const FlatUnit& unit : flat.units) { names.push_back(unit.name); }
    return names;
}

std::vector<Box> plain_boxes(const std::vector<OwnedBox>& owned)
{
    std::vector<Box> boxes;
    for (const OwnedBox& part : owned) { boxes.push_back(part.box); }
    return boxes;
}

TEST(BoxesOfFlatRange, EdgeRows)
{
    EXPECT_TRUE(boxes_of_flat_range({4, 5}, 7, 7).empty());
    EXPECT_TRUE(boxes_of_flat_range({0, 5}, 0, 0).empty());
    EXPECT_EQ(boxes_of_flat_range({4, 5}, 0, 20), (std::vector<Box>{box({0, 0}, {4, 5})}));
    EXPECT_EQ(boxes_of_flat_range({7}, 2, 5), (std::vector<Box>{box({2}, {3})}));
    EXPECT_EQ(boxes_of_flat_range({4, 5}, 6, 9), (std::vector<Box>{box({1, 1}, {1, 3})}));
    EXPECT_EQ(boxes_of_flat_range({4, 5}, 8, 12), (std::vector<Box>{box({1, 3}, {1, 2}), box({2, 0}, {1, 2})}));
    EXPECT_EQ(boxes_of_flat_range({4, 5}, 3, 18),
              (std::vector<Box>{box({0, 3}, {1, 2}), box({1, 0}, {2, 5}), box({3, 0}, {1, 3})}));
    EXPECT_EQ(boxes_of_flat_range({4, 5}, 5, 10), (std::vector<Box>{box({1, 0}, {1, 5})}));
    EXPECT_THROW(boxes_of_flat_range({4, 5}, 0, 21), InternalError);
    EXPECT_THROW(boxes_of_flat_range({4, 5}, -1, 2), InternalError);
}

TEST(BoxesOfFlatRange, ThreeDimensionsReachFiveBoxes)
{
    EXPECT_EQ(boxes_of_flat_range({3, 3, 3}, 1, 26),
              (std::vector<Box>{box({0, 0, 1}, {1, 1, 2}), box({0, 1, 0}, {1, 2, 3}), box({1, 0, 0}, {1, 3, 3}),
                                box({2, 0, 0}, {1, 2, 3}), box({2, 2, 0}, {1, 1, 2})}));
}

/// Linear indices of a box's elements in C order.
std::vector<std::int64_t> elements_of(const Box& b, const Shape& shape)
{
    std::vector<std::int64_t> indices;
    const std::int64_t num = b.num_elements();
    for (std::int64_t i = 0; i < num; ++i)
    {
        std::int64_t rest = i;
        std::int64_t linear = 0;
        std::int64_t stride = 1;
        for (std::size_t dim = shape.size(); dim-- > 0;)
        {
            linear += (b.offset[dim] + rest % b.shape[dim]) * stride;
            rest /= b.shape[dim];
            stride *= shape[dim];
        }
        indices.push_back(linear);
    }
    return indices;
}

TEST(BoxesOfFlatRange, EveryRangeIsCoveredInOrderByFewBoxes)
{
    for (const Shape& shape : {Shape{6}, Shape{3, 4}, Shape{1, 5}, Shape{5, 1}, Shape{2, 3, 4}, Shape{2, 1, 3}, Shape{2, 2, 2, 3}})
    {
        std::int64_t total = 1;
        for (const std::int64_t extent : shape) { total *= extent; }
        for (std::int64_t begin = 0; begin <= total; ++begin)
        {
            for (std::int64_t end = begin; end <= total; ++end)
            {
                const auto boxes = boxes_of_flat_range(shape, begin, end);
                ASSERT_LE(boxes.size(), 2 * shape.size() - 1);
                std::int64_t next = begin;
                for (const Box& b : boxes)
                {
                    for (const std::int64_t index : elements_of(b, shape)) { ASSERT_EQ(index, next++); }
                }
                ASSERT_EQ(next, end);
            }
        }
    }
}

TEST(FlatLayout, UnitsFollowTheSplit)
{
    const auto names = [](const FlatLayout& flat)
    {
        std::vector<std::string> list;
        for (const FlatUnit& unit : flat.units) { list.push_back(unit.name); }
        return list;
    };
    using Names = std::vector<std::string>;
    ModelSpec model = small_llama();
    model.layers = 5;
    ParallelLayout layout = zero_layout(1, 1, 2);
    layout.split = parse_stage_split("1,4");
    EXPECT_EQ(names(flat_of(model, layout, at(0))), (Names{"embedding", "layers.0"}));
    EXPECT_EQ(names(flat_of(model, layout, at(0, 0, 1))), (Names{"layers.1", "layers.2", "layers.3", "layers.4", "head"}));
    layout.schedule = PipelineKind::interleaved;
    layout.virtual_stages = 2;
    layout.split = parse_stage_split("1,2,1,1");
    EXPECT_EQ(names(flat_of(model, layout, at(0))), (Names{"embedding", "layers.0", "layers.3"}));
    EXPECT_EQ(names(flat_of(model, layout, at(0, 0, 1))), (Names{"layers.1", "layers.2", "layers.4", "head"}));
    layout.schedule = PipelineKind::zbv;
    EXPECT_EQ(names(flat_of(model, layout, at(0))), (Names{"embedding", "layers.0", "layers.4", "head"}));
    EXPECT_EQ(names(flat_of(model, layout, at(0, 0, 1))), (Names{"layers.1", "layers.2", "layers.3"}));
}

TEST(FlatLayout, WorkedExample)
{
    const ParallelLayout layout = zero_layout(3, 1, 1, 1);
    const FlatLayout flat = flat_of(small_llama(), layout, at(0));
    const FlatUnit& unit = flat.unit_of("layers.0.attn.q_proj.weight");
    struct Row { const char* name; std::int64_t offset, elements; };
    const Row rows[] = {
        {"layers.0.attn.q_proj.weight", 0, 36},   {"layers.0.attn.k_proj.weight", 36, 12}, {"layers.0.attn.v_proj.weight", 48, 12},
        {"layers.0.attn.o_proj.weight", 64, 36},  {"layers.0.mlp.gate_proj.weight", 128, 60}, {"layers.0.mlp.up_proj.weight", 188, 60},
        {"layers.0.mlp.down_proj.weight", 256, 60}, {"layers.0.input_norm.weight", 320, 6}, {"layers.0.mlp_norm.weight", 384, 6},
    };
    ASSERT_EQ(unit.tensors.size(), std::size(rows));
    for (std::size_t i = 0; i < std::size(rows); ++i)
    {
        EXPECT_EQ(unit.tensors[i].spec.name, rows[i].name);
        EXPECT_EQ(unit.tensors[i].offset, rows[i].offset) << rows[i].name;
        EXPECT_EQ(unit.tensors[i].num_elements(), rows[i].elements) << rows[i].name;
    }
    EXPECT_EQ(unit.name, "layers.0");
    EXPECT_EQ(unit.decay_elements, 320);
    EXPECT_EQ(unit.frozen_begin, 448);
    EXPECT_EQ(unit.num_elements, 576);
    EXPECT_EQ(unit.shard_elements, 192);

    const std::string up = "layers.0.mlp.up_proj.weight";
    const auto first = boxes_of(flat, layout, at(0, 0), up, StateKind::optimizer);
    ASSERT_EQ(plain_boxes(first), (std::vector<Box>{box({0, 0}, {1, 4})}));
    EXPECT_EQ(first[0].local_offset, 188);
    const auto second = boxes_of(flat, layout, at(0, 1), up, StateKind::optimizer);
    ASSERT_EQ(plain_boxes(second), (std::vector<Box>{box({0, 4}, {1, 2}), box({1, 0}, {9, 6})}));
    EXPECT_EQ(second[0].local_offset, 0);
    EXPECT_EQ(second[1].local_offset, 2);
    EXPECT_TRUE(boxes_of(flat, layout, at(0, 2), up, StateKind::optimizer).empty());
    EXPECT_EQ(boxes_of(flat, layout, at(0, 2), "layers.0.mlp_norm.weight", StateKind::optimizer)[0].local_offset, 0);
    EXPECT_EQ(boxes_of(flat, layout, at(0, 2), up, StateKind::model)[0].local_offset, 188);
}

TEST(FlatLayout, UnitsOfTiedAndUntiedModels)
{
    using Names = std::vector<std::string>;
    EXPECT_EQ(unit_names(flat_of(small_llama(), zero_layout(1, 1, 1), at(0))),
              (Names{"embedding", "layers.0", "layers.1", "head"}));
    EXPECT_EQ(unit_names(flat_of(small_gpt2(), zero_layout(1, 1, 1), at(0))),
              (Names{"tied_embedding", "embedding", "layers.0", "layers.1", "head"}));
}

TEST(FlatLayout, TiedEmbeddingStandsOnFirstAndLastStage)
{
    using Names = std::vector<std::string>;
    ModelSpec model = small_gpt2();
    model.layers = 3;
    const ParallelLayout layout = zero_layout(1, 1, 3);
    EXPECT_EQ(unit_names(flat_of(model, layout, at(0, 0, 0))), (Names{"tied_embedding", "embedding", "layers.0"}));
    EXPECT_EQ(unit_names(flat_of(model, layout, at(0, 0, 1))), (Names{"layers.1"}));
    EXPECT_EQ(unit_names(flat_of(model, layout, at(0, 0, 2))), (Names{"tied_embedding", "layers.2", "head"}));
    const FlatLayout first = flat_of(model, layout, at(0, 0, 0));
    const FlatLayout last = flat_of(model, layout, at(0, 0, 2));
    EXPECT_EQ(first.unit_of("embed_tokens.weight").num_elements, last.unit_of("embed_tokens.weight").num_elements);
    EXPECT_EQ(replica_index(first, layout, at(0, 0, 0), "embed_tokens.weight", StateKind::model), 0);
    EXPECT_EQ(replica_index(last, layout, at(0, 0, 2), "embed_tokens.weight", StateKind::model), 1);
}

TEST(FlatLayout, HeadUnitOfATiedModelHasNoDecayGroup)
{
    const FlatLayout flat = flat_of(small_gpt2(), zero_layout(1, 1, 1), at(0));
    const FlatUnit& head = flat.unit_of("final_norm.weight");
    EXPECT_EQ(head.decay_elements, 0);
    EXPECT_EQ(head.frozen_begin, 128);
    const FlatUnit& embedding = flat.unit_of("embed_tokens.weight");
    EXPECT_EQ(embedding.decay_elements, embedding.frozen_begin);
}

TEST(FlatLayout, FuseGroupsHaveNoGapAtAnyTp)
{
    ModelSpec model = small_gpt2();
    model.activation = Activation::swiglu;
    for (const std::int64_t tp : {1, 2, 4})
    {
        const ParallelLayout layout = zero_layout(2, tp, 1);
        const FlatLayout flat = flat_of(model, layout, at(tp - 1));
        const auto offset = [&flat](const std::string& name) { return flat.tensor("layers.1." + name).offset; };
        const auto size = [&flat](const std::string& name) { return flat.tensor("layers.1." + name).num_elements(); };
        for (const std::string kind : {".weight", ".bias"})
        {
            EXPECT_EQ(offset("attn.q_proj" + kind) + size("attn.q_proj" + kind), offset("attn.k_proj" + kind)) << tp << kind;
            EXPECT_EQ(offset("attn.k_proj" + kind) + size("attn.k_proj" + kind), offset("attn.v_proj" + kind)) << tp << kind;
            EXPECT_EQ(offset("mlp.gate_proj" + kind) + size("mlp.gate_proj" + kind), offset("mlp.up_proj" + kind)) << tp << kind;
        }
    }
}

TEST(FlatLayout, GroupsAreAlignedAndUnitsPadded)
{
    for (const std::int64_t element_bytes : {2, 4, 8})
    {
        const std::int64_t alignment = 256 / element_bytes;
        const FlatLayout flat = make_flat_layout(small_gpt2(), zero_layout(3, 2, 1), at(1), element_bytes);
        for (const FlatUnit& unit : flat.units)
        {
            EXPECT_EQ(unit.num_elements % (3 * alignment), 0) << unit.name;
            EXPECT_EQ(unit.shard_elements * 3, unit.num_elements) << unit.name;
            std::int64_t end = 0;
            std::string group;
            for (const FlatTensor& tensor : unit.tensors)
            {
                const bool joins = !tensor.spec.fuse_group.empty() && tensor.spec.fuse_group == group;
                if (!joins) { EXPECT_EQ(tensor.offset % alignment, 0) << tensor.spec.name; }
                EXPECT_GE(tensor.offset, end) << tensor.spec.name;
                EXPECT_LT(tensor.offset - end, alignment) << tensor.spec.name;
                const bool decays = tensor.spec.decay == DecayGroup::decay;
                EXPECT_EQ(tensor.offset < unit.decay_elements, decays) << tensor.spec.name;
                end = tensor.offset + tensor.num_elements();
                group = tensor.spec.fuse_group;
            }
            EXPECT_LE(end, unit.frozen_begin);
            EXPECT_LE(unit.frozen_begin, unit.num_elements);
        }
    }
    EXPECT_THROW(make_flat_layout(small_gpt2(), zero_layout(1, 1, 1), at(0), 3), InternalError);
}

TEST(FlatLayout, IsTheSameAtEveryZeroStage)
{
    const FlatLayout a = flat_of(small_gpt2(), zero_layout(2, 2, 1, 0), at(1, 1));
    for (int zero = 1; zero <= 3; ++zero)
    {
        const FlatLayout b = flat_of(small_gpt2(), zero_layout(2, 2, 1, zero), at(1, 1));
        ASSERT_EQ(a.num_elements(), b.num_elements());
        for (const TensorSpec& spec : canonical_tensors(small_gpt2()))
        {
            EXPECT_EQ(a.tensor(spec.name).offset, b.tensor(spec.name).offset);
        }
    }
}

// Rows of training.md 4A (TT#2387, BLOOM): copies over tp drift apart where the sum of their gradients is forgotten.
TEST(FlatLayout, SequenceParallelMakesGradientsOfWhatTpDoesNotCutPartial)
{
    ParallelLayout cut = zero_layout(2, 2, 1, 1);
    cut.sequence_parallel = true;
    const FlatLayout plain = flat_of(small_gpt2(), zero_layout(2, 2, 1, 1), at(1, 1)), flat = flat_of(small_gpt2(), cut, at(1, 1));
    ASSERT_EQ(flat.num_elements(), plain.num_elements());
    int partial = 0;
    for (const TensorSpec& spec : canonical_tensors(small_gpt2()))
    {
        const FlatTensor& tensor = flat.tensor(spec.name);
        EXPECT_EQ(tensor.offset, plain.tensor(spec.name).offset);
        EXPECT_EQ(tensor.box, plain.tensor(spec.name).box);
        EXPECT_EQ(partial_gradient_ranks(plain.tensor(spec.name).spec.shard, 2), 1) << spec.name;
        EXPECT_EQ(partial_gradient_ranks(tensor.spec.shard, 2), spec.shard.tp == Placement::shard ? 1 : 2) << spec.name;
        partial += tensor.spec.shard.tp == Placement::replicate_grad_partial ? 1 : 0;
    }
    EXPECT_GT(partial, 0);
    cut.tp = 1;
    EXPECT_EQ(flat_of(small_gpt2(), cut, at(0, 1)).tensor("final_norm.weight").spec.shard.tp, Placement::replicate);
}

TEST(FlatLayout, VocabularyIsPaddedWithoutABox)
{
    const ParallelLayout layout = zero_layout(1, 4, 1);  // 11 rows over 4 ranks: 3 3 3 2
    ModelSpec model = small_gpt2();
    for (std::int64_t tp = 0; tp < 4; ++tp)
    {
        const FlatLayout flat = flat_of(model, layout, at(tp));
        const FlatTensor& tensor = flat.tensor("embed_tokens.weight");
        EXPECT_EQ(tensor.local_shape, (Shape{3, 8}));
        EXPECT_EQ(tensor.box, box({tp * 3, 0}, {tp == 3 ? 2 : 3, 8}));
    }
    model.vocab = 5;  // 2 2 1 0: the last rank holds padding alone
    const FlatLayout flat = flat_of(model, layout, at(3));
    EXPECT_EQ(flat.tensor("embed_tokens.weight").num_elements(), 16);
    EXPECT_EQ(flat.tensor("embed_tokens.weight").box.num_elements(), 0);
    EXPECT_TRUE(boxes_of(flat, layout, at(3), "embed_tokens.weight", StateKind::model).empty());
    EXPECT_TRUE(boxes_of(flat, layout, at(3), "embed_tokens.weight", StateKind::optimizer).empty());
}

TEST(FlatLayout, KeyValueHeadsAreSharedWhenFewerThanTp)
{
    ModelSpec model = small_gpt2();
    model.kv_heads = 2;
    struct Row { std::int64_t tp, rank, first_row, rows, replica; };
    for (const Row& row : {Row{1, 0, 0, 4, 0}, Row{2, 0, 0, 2, 0}, Row{2, 1, 2, 2, 0}, Row{4, 0, 0, 2, 0}, Row{4, 1, 0, 2, 1},
                           Row{4, 2, 2, 2, 0}, Row{4, 3, 2, 2, 1}})
    {
        const ParallelLayout layout = zero_layout(1, row.tp, 1);
        const FlatLayout flat = flat_of(model, layout, at(row.rank));
        for (const char* name : {"layers.0.attn.k_proj.weight", "layers.0.attn.v_proj.weight"})
        {
            EXPECT_EQ(flat.tensor(name).box, box({row.first_row, 0}, {row.rows, 8})) << row.tp << " " << row.rank;
            EXPECT_EQ(replica_index(flat, layout, at(row.rank), name, StateKind::model), row.replica);
        }
        EXPECT_EQ(flat.tensor("layers.0.attn.k_proj.bias").box, box({row.first_row}, {row.rows}));
        EXPECT_EQ(flat.tensor("layers.0.attn.q_proj.weight").box.shape[0], 8 / row.tp);
        EXPECT_EQ(flat.tensor("layers.0.attn.o_proj.weight").box, box({0, row.rank * 8 / row.tp}, {8, 8 / row.tp}));
        EXPECT_EQ(flat.tensor("layers.0.attn.o_proj.bias").box, box({0}, {8}));
    }
}

TEST(FlatLayout, UnknownTensorsAreRefused)
{
    const ParallelLayout layout = zero_layout(1, 1, 2);
    const FlatLayout flat = flat_of(small_llama(), layout, at(0, 0, 1));
    EXPECT_THROW(flat.tensor("layers.0.input_norm.weight"), InternalError);
    EXPECT_THROW(flat.unit_of("nonsense"), InternalError);
    EXPECT_EQ(flat.find("nonsense"), nullptr);
    EXPECT_TRUE(boxes_of(flat, layout, at(0, 0, 1), "layers.0.input_norm.weight", StateKind::model).empty());
}

ModelSpec random_model(const CounterRng& rng, std::uint64_t n)
{
    const auto pick = [&rng, n](std::uint64_t what, std::int64_t low, std::int64_t high)
    { return low + static_cast<std::int64_t>(rng.bits(n * 100 + what) % static_cast<std::uint64_t>(high - low + 1)); };
    ModelSpec model = pick(0, 0, 1) == 0 ? small_gpt2() : small_llama();
    model.vocab = pick(1, 1, 23);
    model.hidden = pick(2, 1, 13);
    model.layers = pick(3, 1, 5);
    model.kv_heads = pick(4, 1, 4);
    model.heads = model.kv_heads * pick(5, 1, 3);
    model.head_dim = 2 * pick(6, 1, 3);
    model.ffn = 12 * pick(7, 1, 3);
    model.tied = pick(8, 0, 1) == 1;
    model.qk_norm = pick(9, 0, 1) == 1;
    model.qkv_bias = pick(10, 0, 1) == 1;
    return model;
}

ParallelLayout random_layout(const CounterRng& rng, std::uint64_t n, const ModelSpec& model)
{
    for (std::uint64_t attempt = 0;; ++attempt)
    {
        const auto pick = [&](std::uint64_t what, std::int64_t low, std::int64_t high)
        {
            return low + static_cast<std::int64_t>(rng.bits(n * 100 + 50 + what + attempt * 100000) %
                                                   static_cast<std::uint64_t>(high - low + 1));
        };
        ParallelLayout layout = zero_layout(pick(0, 1, 4), pick(1, 1, 12), pick(2, 1, 5), static_cast<int>(pick(3, 0, 3)));
        layout.cp = pick(4, 1, 2);
        if (layout.zero_stage > 0 && layout.dp % 2 == 0 && pick(5, 0, 1) == 1) { layout.dp_shard = 2; }
        if (!validate(layout, model, layout.world()).empty()) { continue; }
        if (n % 2 == 0) { layout.split.kind = SplitKind::by_cost; }
        // A V where the layers suffice: both ends of the model on stage 0.
        ParallelLayout v = layout;
        v.schedule = PipelineKind::zbv;
        v.virtual_stages = 2;
        return validate(v, model, v.world()).empty() ? v : layout;
    }
}

/// Counts, for each element of each tensor, the ranks that hold it as copy 0, and checks that local places agree.
void expect_covered_once(const ModelSpec& model, const ParallelLayout& layout, StateKind state)
{
    const std::vector<TensorSpec> tensors = canonical_tensors(model);
    std::map<std::string, std::vector<int>> holders;
    for (const TensorSpec& spec : tensors)
    {
        std::int64_t total = 1;
        for (const std::int64_t extent : spec.shape) { total *= extent; }
        holders[spec.name].assign(static_cast<std::size_t>(total), 0);
    }
    const DeviceMesh mesh(layout);
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank)
    {
        const MeshCoordinate coordinate = mesh.coordinate(rank);
        const FlatLayout flat = make_flat_layout(model, layout, coordinate, 4);
        for (const TensorSpec& spec : tensors)
        {
            const auto owned = boxes_of(flat, layout, coordinate, spec.name, state);
            if (owned.empty()) { continue; }
            const FlatTensor& local = flat.tensor(spec.name);
            const bool sharded = layout.zero_stage > (state == StateKind::optimizer ? 0 : 2);
            const std::int64_t storage = sharded ? flat.unit_of(spec.name).shard_elements : flat.unit_of(spec.name).num_elements;
            const std::int64_t shard_begin = sharded ? coordinate[MeshAxis::dp] % layout.shards() * storage : 0;
            const std::vector<std::int64_t> whole = elements_of(local.box, spec.shape);
            for (const OwnedBox& part : owned)
            {
                ASSERT_GE(part.local_offset, 0);
                ASSERT_LE(part.local_offset + part.box.num_elements(), storage);
                std::int64_t place = part.local_offset + shard_begin - local.offset;
                for (const std::int64_t element : elements_of(part.box, spec.shape))
                {
                    ASSERT_EQ(whole.at(static_cast<std::size_t>(place++)), element) << spec.name;
                    const bool counts = replica_index(flat, layout, coordinate, spec.name, state) == 0;
                    holders[spec.name].at(static_cast<std::size_t>(element)) += counts ? 1 : 0;
                }
            }
        }
    }
    for (const auto& entry : holders)
    {
        for (const int count : entry.second) { ASSERT_EQ(count, 1) << entry.first; }
    }
}

TEST(BoxesOf, EachElementHasExactlyOneHolderInRandomLayouts)
{
    const CounterRng rng(17, RngPurpose::test);
    int with_shared_heads = 0, with_zero = 0, with_stages = 0, with_replicas = 0, with_v = 0;
    for (std::uint64_t n = 0; n < 60; ++n)
    {
        const ModelSpec model = random_model(rng, n);
        const ParallelLayout layout = random_layout(rng, n, model);
        SCOPED_TRACE(fmt::format("case {}: {}", n, layout_text(layout)));
        expect_covered_once(model, layout, StateKind::model);
        expect_covered_once(model, layout, StateKind::optimizer);
        if (HasFatalFailure()) { return; }
        with_shared_heads += layout.tp > model.kv_heads ? 1 : 0;
        with_zero += layout.zero_stage > 0 && layout.dp > 1 ? 1 : 0;
        with_stages += layout.pp > 1 && model.tied ? 1 : 0;
        with_replicas += layout.replicas() > 1 ? 1 : 0;
        with_v += layout.schedule == PipelineKind::zbv ? 1 : 0;
    }
    EXPECT_GT(with_replicas, 3);
    EXPECT_GT(with_shared_heads, 5);
    EXPECT_GT(with_zero, 10);
    EXPECT_GT(with_stages, 5);
    EXPECT_GT(with_v, 2);
}

TEST(BoxesOf, CopiesOfAnElementAreDistinctlyNumbered)
{
    ModelSpec model = small_gpt2();
    model.kv_heads = 2;
    ParallelLayout layout = zero_layout(2, 4, 2);
    layout.cp = 2;
    const DeviceMesh mesh(layout);
    // tensor -> (first row of the box, replica) -> holders
    std::map<std::string, std::map<std::pair<std::int64_t, std::int64_t>, int>> holders;
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank)
    {
        const MeshCoordinate coordinate = mesh.coordinate(rank);
        const FlatLayout flat = make_flat_layout(model, layout, coordinate, 4);
        for (const char* name : {"embed_tokens.weight", "layers.0.attn.k_proj.weight", "layers.0.input_norm.weight"})
        {
            if (flat.find(name) == nullptr) { continue; }
            const std::int64_t replica = replica_index(flat, layout, coordinate, name, StateKind::model);
            ++holders[name][{flat.tensor(name).box.offset[0], replica}];
        }
    }
    const std::map<std::string, std::size_t> expected = {
        {"embed_tokens.weight", 4 * 2 * 2 * 2},        // 4 slices x (2 stages, cp 2, dp 2)
        {"layers.0.attn.k_proj.weight", 2 * 2 * 4},    // 2 slices x (2 sharers, cp 2, dp 2)
        {"layers.0.input_norm.weight", 4 * 2 * 2},     // tp 4, cp 2, dp 2
    };
    for (const auto& row : expected)
    {
        EXPECT_EQ(holders[row.first].size(), row.second) << row.first;
        for (const auto& copy : holders[row.first]) { EXPECT_EQ(copy.second, 1) << row.first; }
    }
}

}  // namespace
}  // namespace plimsoll
