// Layouts over MPI against one rank, sampled: losses and norms of 50 steps, copies of parameters equal to the bit.

#include <sstream>

#include "comm/exchange.hpp"
#include "support/mpi_world.hpp"
#include "torch/parity/parity_cases.hpp"

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

void check(const Case& c, at::ScalarType dtype)
{
    SCOPED_TRACE(text_of(c) + (dtype == at::kDouble ? " fp64" : " fp32"));
    const ModelSpec spec = spec_of(c.model);
    const ParityRecord& expected = one_rank(c.model, spec, dtype, parity_steps);
    const ParallelLayout layout = layout_of(c);
    ParityRecord got;
    parity_body(mpi_world(), spec, layout, dtype, parity_steps, got);
    gather_copies(got);
    // This rank holds its parts of the gradients only; threads have compared them.
    got.gradients.clear();
    got.last_gradients.clear();
    expect_parity(got, expected, dtype);
}

std::vector<Case> sampled(std::int64_t world)
{
    if (world == 2)
    {
        return {{"gpt2", 2, 1, 1, 3, 3}, {"gpt2", 1, 2, 1, 1, 0}, {"gpt2", 1, 1, 2, 3, 0}, {"llama-tied", 2, 1, 1, 1, 1}};
    }
    return {{"gpt2", 2, 2, 1, 1, 2}, {"gpt2", 1, 2, 2, 3, 0}, {"llama-tied", 4, 1, 1, 1, 3, 2}, {"qwen3", 1, 4, 1, 1, 0}};
}

}  // namespace

TEST(MpiParity, LayoutsHaveTheLossesOfOneRank)
{
    for (const Case& c : sampled(mpi_world().size()))
    {
        check(c, at::kDouble);
        if (std::string(c.model) == "gpt2") { check(c, at::kFloat); }
    }
}
