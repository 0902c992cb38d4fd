// The parity matrix: every row of layouts.txt against one rank, over threads.
//
// By default all rows in fp64 with their micro-batches under DelayedCommunicator (a result read before its wait is NaN), and each
// fourth row in fp32 with as few micro-batches as its schedule takes; those marked bf16 in bf16 beside one rank in bf16, 20 steps.
// PLIMSOLL_PARITY=all runs each row in all its types with both numbers of micro-batches, 50 steps;
// PLIMSOLL_PARITY_FIGURES=FILE gets one line per run with the largest differences, for scripts/parity_table.py.
//
// Faults that other systems shipped, and what here would have shown them (numbers as in their issue trackers):
//   Megatron-LM 1754        vocabulary that tp does not divide              37 tokens in every row with tp
//   Megatron-LM 7452        vocab-parallel loss off by log(tp)              every row with tp; label smoothing: layout_parity_test.cpp
//   Megatron-LM 7227        tied weight counted twice in the norm           rows of gpt2, llama-tied and qwen3 with pp: norm of each step
//   torchtitan 1733, 2972   accumulation with pp scales gradients           rows with pp, each with two numbers of micro-batches
//   DeepSpeed 6550, 7981    the last micro-batch is not reduced             rows with dp, each with two numbers of micro-batches
//   DeepSpeed 4298          zero 2 and 3 disagree                           rows with zero; to the bit: layout_parity_test.cpp
//   DeepSpeed 1801 (BLOOM)  tp ranks clip differently, norms drift apart    clipping is on, copies are compared to the bit at the end
//   torchtitan 774          ZBV computes something else                     rows with zbv

#include <cstdlib>
#include <fstream>
#include <set>

#include "comm/delayed_communicator.hpp"
#include "comm/thread_communicator.hpp"
#include "torch/parity/bf16_gates.hpp"
#include "torch/parity/parity_support.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

enum class Waiting { plain, delayed };

struct MatrixRun
{
    LayoutRow row;
    at::ScalarType dtype = at::kDouble;
    Waiting waiting = Waiting::plain;

    std::int64_t micro_batches() const { return waiting == Waiting::delayed ? row.micro_batches : row.least_micro_batches(); }
    const char* dtype_name() const { return parity_type_name(dtype); }
};

void PrintTo(const MatrixRun& run, std::ostream* out) { *out << run.row.text; }

std::vector<MatrixRun> matrix_runs()
{
    std::vector<MatrixRun> runs;
    const bool all = whole_matrix();
    std::size_t number = 0;
    for (const LayoutRow& row : read_layout_table())
    {
        // Some schedules take one number of micro-batches only.
        const bool two_numbers = row.least_micro_batches() != row.micro_batches;
        runs.push_back({row, at::kDouble, Waiting::delayed});
        if (all && two_numbers) { runs.push_back({row, at::kDouble, Waiting::plain}); }
        if (all) { runs.push_back({row, at::kFloat, Waiting::delayed}); }
        if (all ? two_numbers : number % 4 == 1) { runs.push_back({row, at::kFloat, Waiting::plain}); }
        ++number;
        if (row.bf16 == Bf16Claim::none) { continue; }
        runs.push_back({row, at::kBFloat16, Waiting::delayed});
        if (all && two_numbers) { runs.push_back({row, at::kBFloat16, Waiting::plain}); }
    }
    return runs;
}

void write_figures(const std::string& row, std::int64_t ranks, const char* kind, std::int64_t micro_batches,
                   const ParityFigures& figures)
{
    const char* path = std::getenv("PLIMSOLL_PARITY_FIGURES");
    if (path == nullptr) { return; }
    std::ofstream file(path, std::ios::app);
    file << fmt::format("{}\t{}\t{}\t{}\t{:.2e}\t{:.2e}\t{:.2e}\n", row, ranks, kind, micro_batches, figures.loss, figures.norm,
                        figures.gradient);
}

std::string name_of(const ::testing::TestParamInfo<MatrixRun>& info)
{
    return fmt::format("{}__{}_x{}", info.param.row.test_name, info.param.dtype_name(), info.param.micro_batches());
}

class ParityMatrix : public ::testing::TestWithParam<MatrixRun>
{
};

}  // namespace

TEST_P(ParityMatrix, ComputesWhatOneRankComputes)
{
    const MatrixRun& run = GetParam();
    SCOPED_TRACE(run.row.text);
    const ModelSpec spec = table_model(run.row.model);
    const ParallelLayout layout = run.row.with_micro_batches(run.micro_batches());
    ParityRecord got;
    run_ranks(layout.world(),
              [&](Communicator& world)
              {
                  if (run.waiting == Waiting::plain)
                  {
                      parity_body(world, spec, layout, run.dtype, steps_of(run.dtype), got);
                      return;
                  }
                  const std::unique_ptr<Communicator> delayed = make_delayed_communicator(world);
                  parity_body(*delayed, spec, layout, run.dtype, steps_of(run.dtype), got);
              });
    const ParityFigures figures = run.dtype == at::kBFloat16 ? expect_bf16_parity(got, run.row, layout)
                                                             : expect_parity(got, one_rank(run.row.model, run.dtype), run.dtype);
    write_figures(run.row.text, layout.world(), run.dtype_name(), run.micro_batches(), figures);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ParityMatrix, ::testing::ValuesIn(matrix_runs()), name_of);

TEST(Bf16Rounding, IsSmallEnoughToBeAGate)
{
    // 2^-9 per rounding, over 8 layers: a gradient that lacks a rank's part, or has it twice, is far off. Norms of late
    // steps are those of a trained model, small and all noise.
    std::set<std::string> models;
    for (const LayoutRow& row : read_layout_table())
    {
        if (row.bf16 != Bf16Claim::none) { models.insert(row.model); }
    }
    for (const std::string& model : models)
    {
        SCOPED_TRACE(model);
        const ParityFigures rounding = rounding_of_bf16(model, static_cast<std::size_t>(steps_of(at::kBFloat16)));
        EXPECT_LE(rounding.loss, 0.01);
        EXPECT_LE(rounding.norm, 0.1);
        EXPECT_LE(rounding.gradient, 0.03);
        write_figures(model, 1, "rounding", 1, rounding);
    }
}
