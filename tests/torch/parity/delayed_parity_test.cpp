// The same under DelayedCommunicator, which finds missing waits.

#include "torch/parity/parity_cases.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

void check_all(const std::vector<Case>& cases)
{
    for (const Case& c : cases) { check_layout(c, at::kDouble, Waiting::delayed); }
}

}  // namespace

TEST(DelayedParity, Gpt2OnTwoRanks) { check_all(every_layout("gpt2", 2)); }
TEST(DelayedParity, Gpt2OnFourRanks) { check_all(every_layout("gpt2", 4)); }
TEST(DelayedParity, Gpt2OnEightRanks) { check_all(every_layout("gpt2", 8)); }

TEST(DelayedParity, OtherModelsSampled)
{
    check_all({{"gpt2", 1, 1, 4, 4, 0, 0, "zb-h1"}, {"gpt2", 1, 1, 2, 3, 0, 0, "gpipe"}, {"llama-gqa", 2, 2, 2, 3, 1}, {"llama-tied", 1, 1, 3, 3, 0}, {"qwen3", 2, 4, 1, 1, 1}});
}
