// Memory and messages of the layouts of the parity matrix, of which it is known that they compute the right thing.

#include "support/layout_table.hpp"
#include "torch/plan/recorded_step.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

struct PlannedRow
{
    LayoutRow row;
    Dtype dtype = Dtype::f32;
};

void PrintTo(const PlannedRow& planned, std::ostream* out) { *out << planned.row.text; }

std::vector<PlannedRow> planned_rows()
{
    std::vector<PlannedRow> rows;
    for (const LayoutRow& row : read_layout_table())
    {
        rows.push_back({row, Dtype::f32});
        if (row.bf16 != Bf16Claim::none) { rows.push_back({row, Dtype::bf16}); }
    }
    return rows;
}

class MatrixRow : public ::testing::TestWithParam<PlannedRow>
{
};

std::string row_name(const ::testing::TestParamInfo<PlannedRow>& info)
{
    return info.param.row.test_name + (info.param.dtype == Dtype::bf16 ? "__in_bf16" : "");
}

}  // namespace

TEST_P(MatrixRow, IsAsPlanned)
{
    const LayoutRow& row = GetParam().row;
    StepInputs inputs;
    inputs.model = table_model(row.model);
    inputs.layout = row.with_micro_batches(row.micro_batches);
    inputs.policies.dtype = GetParam().dtype;
    inputs.policies.seq_len = seq_len;
    inputs.policies.loss_chunks = 2;
    inputs.policies.eval_micro_batch = 3;
    check_layout(inputs);
}

INSTANTIATE_TEST_SUITE_P(Layouts, MatrixRow, ::testing::ValuesIn(planned_rows()), row_name);
