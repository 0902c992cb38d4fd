// A run that goes on in another layout: each row of the parity matrix is left for another row of the same model, drawn by a fixed
// generator; those marked bf16 once more in bf16. Parameters (the master too) and moments arrive with all their bits, and the steps that
// follow are one rank's.

#include <random>

#include "comm/thread_communicator.hpp"
#include "nn/train_state.hpp"
#include "support/layout_checkpoint.hpp"
#include "support/temp_dir.hpp"
#include "torch/parity/bf16_gates.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

constexpr std::int64_t steps_before = 3;
constexpr std::int64_t steps_after = 3;

struct Move
{
    LayoutRow from, to;
    at::ScalarType dtype = at::kDouble;
};

void PrintTo(const Move& move, std::ostream* out) { *out << move.from.text << " to " << move.to.text; }

struct TrainedState
{
    ParityRecord record;
    TensorMap params, master, exp_avg, exp_avg_sq;

    void collect(ParityRank& rank)
    {
        rank.collect(FlatState::params, record, params);
        if (rank.params().keeps_master()) { rank.collect(FlatState::master, record, master); }
        rank.collect(FlatState::exp_avg, record, exp_avg);
        rank.collect(FlatState::exp_avg_sq, record, exp_avg_sq);
    }
};

std::string train_and_save(const Move& move, const std::string& root, TrainedState& state)
{
    const ParallelLayout layout = move.from.with_micro_batches(move.from.micro_batches);
    const ModelSpec spec = table_model(move.from.model);
    CheckpointMeta meta = plimsoll::testing::meta_of_model(steps_before, table_config(move.from.model), layout);
    meta.precision = parity_type_name(move.dtype);
    std::string path;
    run_ranks(layout.world(),
              [&](Communicator& world)
              {
                  ParityRank rank(world, spec, layout, move.dtype);
                  for (std::int64_t number = 1; number <= steps_before; ++number) { rank.run(number); }
                  state.collect(rank);
                  const SavedStep saved = save_train_state(root, meta, rank.params(), world);
                  if (world.rank() == 0) { path = saved.path; }
              });
    return path;
}

/// Leaves the losses of the steps that follow.
void load_and_train(const Move& move, const std::string& path, TrainedState& state)
{
    const ParallelLayout layout = move.to.with_micro_batches(move.to.micro_batches);
    const ModelSpec spec = table_model(move.to.model);
    run_ranks(layout.world(),
              [&](Communicator& world)
              {
                  ParityRank rank(world, spec, layout, move.dtype);
                  load_train_state(CheckpointReader(path), spec, rank.params(), rank.groups());
                  state.collect(rank);
                  for (std::int64_t number = steps_before + 1; number <= steps_before + steps_after; ++number)
                  {
                      const double loss = rank.run(number).loss();
                      if (world.rank() == 0) { state.record.losses.push_back(loss); }
                  }
              });
}

void expect_same_bits(const TensorMap& got, const TensorMap& expected, const char* state)
{
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [name, tensor] : expected)
    {
        // What no rank owns would be NaN in both.
        EXPECT_FALSE(tensor.isnan().any().item<bool>()) << state << " of " << name;
        EXPECT_TRUE(at::equal(got.at(name), tensor)) << state << " of " << name;
    }
}

std::vector<Move> moves()
{
    const std::vector<LayoutRow> rows = read_layout_table();
    std::mt19937_64 generator(5);
    std::vector<Move> result;
    const auto leave = [&](const LayoutRow& from, at::ScalarType dtype)
    {
        std::vector<LayoutRow> others;
        for (const LayoutRow& row : rows)
        {
            if (row.model == from.model && row.text != from.text) { others.push_back(row); }
        }
        if (!others.empty()) { result.push_back({from, others[generator() % others.size()], dtype}); }
    };
    for (const LayoutRow& row : rows) { leave(row, at::kDouble); }
    for (const LayoutRow& row : rows)
    {
        if (row.bf16 != Bf16Claim::none) { leave(row, at::kBFloat16); }
    }
    return result;
}

/// What one rank computed in the steps after the move.
void expect_the_steps_of_one_rank(const ParityRecord& got, const Move& move)
{
    const ParityRecord& one = one_rank(move.from.model, move.dtype);
    const bool fp64 = move.dtype == at::kDouble;
    const double gate = fp64 ? 1e-11 : 3 * rounding_of_bf16(move.from.model, steps_before + steps_after).loss;
    ASSERT_EQ(got.losses.size(), static_cast<std::size_t>(steps_after));
    for (std::size_t i = 0; i < got.losses.size(); ++i)
    {
        const std::size_t step = static_cast<std::size_t>(steps_before) + i;
        EXPECT_LE(relative_difference(got.losses[i], one.losses[step]), gate) << "loss of step " << step + 1;
    }
}

std::string name_of_move(const ::testing::TestParamInfo<Move>& info)
{
    const Move& move = info.param;
    return move.from.test_name + "__to__" + move.to.test_name + (move.dtype == at::kBFloat16 ? "__in_bf16" : "");
}

class ResumeMatrix : public ::testing::TestWithParam<Move>
{
};

}  // namespace

TEST_P(ResumeMatrix, GoesOnInAnotherLayout)
{
    const Move& move = GetParam();
    const plimsoll::testing::TempDir dir(plimsoll::testing::fast_directory());
    TrainedState before, after;
    const std::string path = train_and_save(move, dir.path(), before);
    load_and_train(move, path, after);
    expect_same_bits(after.params, before.params, "parameter");
    expect_same_bits(after.master, before.master, "master");
    expect_same_bits(after.exp_avg, before.exp_avg, "exp_avg");
    expect_same_bits(after.exp_avg_sq, before.exp_avg_sq, "exp_avg_sq");
    EXPECT_EQ(after.master.empty(), move.dtype == at::kDouble);
    expect_the_steps_of_one_rank(after.record, move);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ResumeMatrix, ::testing::ValuesIn(moves()), name_of_move);
