// A run that goes on in another layout: each row of the parity matrix is left for another row of the same model, drawn by a fixed
// generator. Parameters and moments arrive with all their bits, and the steps that follow are one rank's.

#include <random>

#include "comm/thread_communicator.hpp"
#include "nn/train_state.hpp"
#include "support/layout_checkpoint.hpp"
#include "support/temp_dir.hpp"
#include "torch/parity/parity_support.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

constexpr std::int64_t steps_before = 3;
constexpr std::int64_t steps_after = 3;

struct TrainedState
{
    ParityRecord record;
    TensorMap params, exp_avg, exp_avg_sq;

    void collect(ParityRank& rank)
    {
        rank.collect(FlatState::params, record, params);
        rank.collect(FlatState::exp_avg, record, exp_avg);
        rank.collect(FlatState::exp_avg_sq, record, exp_avg_sq);
    }
};

std::string train_and_save(const LayoutRow& row, const std::string& root, TrainedState& state)
{
    const ParallelLayout layout = row.with_micro_batches(row.micro_batches);
    const ModelSpec spec = table_model(row.model);
    const CheckpointMeta meta = plimsoll::testing::meta_of_model(steps_before, table_config(row.model), layout);
    std::string path;
    run_ranks(layout.world(),
              [&](Communicator& world)
              {
                  ParityRank rank(world, spec, layout, at::kDouble);
                  for (std::int64_t number = 1; number <= steps_before; ++number) { rank.run(number); }
                  state.collect(rank);
                  const SavedStep saved = save_train_state(root, meta, rank.params(), world);
                  if (world.rank() == 0) { path = saved.path; }
              });
    return path;
}

/// Losses of the steps that follow.
std::vector<double> load_and_train(const LayoutRow& row, const std::string& path, TrainedState& state)
{
    const ParallelLayout layout = row.with_micro_batches(row.micro_batches);
    const ModelSpec spec = table_model(row.model);
    std::vector<double> losses;
    run_ranks(layout.world(),
              [&](Communicator& world)
              {
                  ParityRank rank(world, spec, layout, at::kDouble);
                  load_train_state(CheckpointReader(path), spec, rank.params(), rank.groups());
                  state.collect(rank);
                  for (std::int64_t number = steps_before + 1; number <= steps_before + steps_after; ++number)
                  {
                      const double loss = rank.run(number).loss();
                      if (world.rank() == 0) { losses.push_back(loss); }
                  }
              });
    return losses;
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

struct Move
{
    LayoutRow from, to;
};

void PrintTo(const Move& move, std::ostream* out) { *out << move.from.text << " to " << move.to.text; }

std::vector<Move> moves()
{
    const std::vector<LayoutRow> rows = read_layout_table();
    std::mt19937_64 generator(5);
    std::vector<Move> result;
    for (const LayoutRow& from : rows)
    {
        std::vector<LayoutRow> others;
        for (const LayoutRow& row : rows)
        {
            if (row.model == from.model && row.text != from.text) { others.push_back(row); }
        }
        if (!others.empty()) { result.push_back({from, others[generator() % others.size()]}); }
    }
    return result;
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
    const std::string path = train_and_save(move.from, dir.path(), before);
    const std::vector<double> losses = load_and_train(move.to, path, after);
    expect_same_bits(after.params, before.params, "parameter");
    expect_same_bits(after.exp_avg, before.exp_avg, "exp_avg");
    expect_same_bits(after.exp_avg_sq, before.exp_avg_sq, "exp_avg_sq");
    const ParityRecord& expected = one_rank(move.from.model, at::kDouble);
    ASSERT_EQ(losses.size(), static_cast<std::size_t>(steps_after));
    for (std::size_t i = 0; i < losses.size(); ++i)
    {
        const double loss = expected.losses[static_cast<std::size_t>(steps_before) + i];
        EXPECT_NEAR(losses[i], loss, 1e-11 * loss) << "step " << static_cast<std::size_t>(steps_before) + i + 1;
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ResumeMatrix, ::testing::ValuesIn(moves()),
                         [](const auto& of) { return of.param.from.test_name + "__to__" + of.param.to.test_name; });
