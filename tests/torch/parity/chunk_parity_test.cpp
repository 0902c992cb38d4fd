// What the rows of the matrix leave out of stages with several chunks: dropout with a backward in halves, and checkpoints.

#include "comm/thread_communicator.hpp"
#include "io/checkpoint.hpp"
#include "nn/train_state.hpp"
#include "support/layout_checkpoint.hpp"
#include "support/temp_dir.hpp"
#include "torch/parity/parity_support.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

ParallelLayout chunk_layout(PipelineKind schedule, std::int64_t dp, std::int64_t tp, std::int64_t pp, std::int64_t chunks, int zero)
{
    ParallelLayout layout = parity_layout(dp, tp, pp, 4, zero);
    layout.schedule = schedule;
    layout.virtual_stages = chunks;
    return layout;
}

/// All tensors of a step, whole.
std::map<std::string, std::string> content_of(const std::string& step_dir)
{
    const CheckpointReader reader(step_dir);
    std::map<std::string, std::string> content;
    for (const CheckpointTensor& tensor : reader.tensors())
    {
        Box whole;
        whole.shape = tensor.shape;
        whole.offset.assign(tensor.shape.size(), 0);
        std::string bytes(static_cast<std::size_t>(whole.num_elements() * dtype_bytes(tensor.dtype)), '\0');
        reader.read(tensor.state, tensor.name, whole, bytes.data());
        content[fmt::format("{}/{}", checkpoint_state_path(tensor.state), tensor.name)] = std::move(bytes);
    }
    return content;
}

}  // namespace

TEST(ChunkParity, DropoutAndABackwardInHalves)
{
    ParityTerms terms;
    terms.dropout.hidden = terms.dropout.embedding = 0.1;
    terms.label_smoothing = 0.1;
    const std::int64_t steps = 20;
    const auto expected = record_of("gpt2", parity_layout(1, 1, 1, 1, 0), at::kDouble, steps, terms);
    for (const ParallelLayout& layout :
         {chunk_layout(PipelineKind::zb_h1, 1, 1, 2, 1, 0), chunk_layout(PipelineKind::zb_h1, 1, 2, 4, 1, 0),
          chunk_layout(PipelineKind::zbv, 1, 1, 2, 2, 0), chunk_layout(PipelineKind::zbv, 2, 1, 3, 2, 3),
          chunk_layout(PipelineKind::interleaved, 1, 1, 2, 2, 0)})
    {
        SCOPED_TRACE(layout_text(layout));
        expect_parity(*record_of("gpt2", layout, at::kDouble, steps, terms), *expected, at::kDouble);
    }
}

TEST(ChunkParity, ACheckpointGoesFromChunksToPlainStagesAndBackToTheBit)
{
    const plimsoll::testing::TempDir dir;
    const std::string config = table_config("gpt2");
    const ModelSpec spec = table_model("gpt2");
    std::map<std::string, std::string> first;
    std::int64_t step = 0;
    for (const ParallelLayout& layout :
         {chunk_layout(PipelineKind::interleaved, 2, 1, 2, 2, 3), parity_layout(1, 1, 1, 1, 0), chunk_layout(PipelineKind::zbv, 1, 2, 2, 2, 0),
          parity_layout(1, 1, 2, 3, 0), chunk_layout(PipelineKind::interleaved, 1, 1, 4, 2, 0), chunk_layout(PipelineKind::zbv, 2, 1, 4, 2, 1)})
    {
        SCOPED_TRACE(layout_text(layout));
        const std::string before = step > 0 ? find_checkpoint(dir.path(), nullptr) : "";
        ++step;
        run_ranks(layout.world(),
                  [&](Communicator& world)
                  {
                      ParityRank rank(world, spec, layout, at::kDouble);
                      if (before.empty()) { rank.run(1); }
                      else { load_train_state(CheckpointReader(before), spec, rank.params(), rank.groups()); }
                      CheckpointMeta meta = plimsoll::testing::meta_of_model(step, config, layout);
                      meta.precision = "fp64";
                      save_train_state(dir.path(), meta, rank.params(), world);
                  });
        const std::map<std::string, std::string> saved = content_of(find_checkpoint(dir.path(), nullptr));
        if (first.empty()) { first = saved; }
        EXPECT_EQ(saved.size(), 3 * canonical_tensors(spec).size());
        for (const auto& [name, bytes] : first) { EXPECT_TRUE(saved.at(name) == bytes) << name; }
    }
}
