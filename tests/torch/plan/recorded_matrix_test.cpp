// Memory and messages of the layouts of the parity matrix, of which it is known that they compute the right thing.

#include "support/layout_table.hpp"
#include "torch/plan/recorded_step.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

class MatrixRow : public ::testing::TestWithParam<LayoutRow>
{
};

std::string row_name(const ::testing::TestParamInfo<LayoutRow>& info) { return info.param.test_name; }

}  // namespace

/// The layouts of the parity matrix: memory and messages of what is known to compute the right thing.
TEST_P(MatrixRow, IsAsPlanned)
{
    StepInputs inputs;
    inputs.model = table_model(GetParam().model);
    inputs.layout = GetParam().with_micro_batches(GetParam().micro_batches);
    inputs.policies.seq_len = seq_len;
    inputs.policies.loss_chunks = 2;
    inputs.policies.eval_micro_batch = 3;
    check_layout(inputs);
}

INSTANTIATE_TEST_SUITE_P(Layouts, MatrixRow, ::testing::ValuesIn(read_layout_table()), row_name);
