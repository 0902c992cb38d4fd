// Layouts over MPI against one rank, those marked mpi in the matrix: losses and norms of 50 steps, copies of parameters equal to the bit.

#include <sstream>

#include "comm/exchange.hpp"
#include "support/mpi_world.hpp"
#include "torch/parity/bf16_gates.hpp"

using namespace plimsoll;
using namespace plimsoll::test;
using plimsoll::testing::mpi_world;

namespace
{

/// The copies of all ranks, as threads would have left them in one record.
void gather_copies(ParityRecord& record)
{
    std::string mine;
    for (const auto& [place, digests] : record.copies)
    {
        for (const std::string& digest : digests) { mine += place + "\t" + digest + "\n"; }
    }
    record.copies.clear();
    for (const std::string& text : all_gather_bytes(mpi_world(), mine))
    {
        std::istringstream lines(text);
        std::string place, digest;
        while (std::getline(lines, place, '\t') && std::getline(lines, digest)) { record.copies[place].push_back(digest); }
    }
}

void check(const LayoutRow& row, at::ScalarType dtype)
{
    SCOPED_TRACE(row.text + " " + parity_type_name(dtype));
    const ParallelLayout layout = row.with_micro_batches(row.micro_batches);
    ParityRecord got;
    parity_body(mpi_world(), table_model(row.model), layout, dtype, steps_of(dtype), got);
    gather_copies(got);
    // This rank holds its parts of the gradients and weights only; threads have compared them.
    got.gradients.clear();
    got.last_gradients.clear();
    got.weights.clear();
    if (dtype == at::kBFloat16) { expect_bf16_parity(got, row, layout); }
    else { expect_parity(got, one_rank(row.model, dtype), dtype); }
}

}  // namespace

TEST(MpiParity, LayoutsHaveTheLossesOfOneRank)
{
    std::int64_t number = 0;
    for (const LayoutRow& row : read_layout_table())
    {
        if (!row.mpi || row.layout.world() != mpi_world().size()) { continue; }
        check(row, at::kDouble);
        if (number++ == 0) { check(row, at::kFloat); }
        if (row.bf16 != Bf16Claim::none) { check(row, at::kBFloat16); }
    }
    EXPECT_GT(number, 2);
}
