#include "nn/determinism.hpp"

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/error.hpp"
#include "comm/exchange.hpp"
#include "nn/ops/tensor_view.hpp"

namespace plimsoll::nn
{
namespace
{

/// Empty where the system does not say: then the instruction set alone is compared.
std::string processor_name()
{
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line))
    {
        const std::size_t colon = line.find(": ");
        if (line.rfind("model name", 0) == 0 && colon != std::string::npos) { return line.substr(colon + 2); }
    }
    return {};
}

}  // namespace

std::string arithmetic_text()
{
    const std::string name = processor_name();
    const int threads = at::get_num_threads();
    return fmt::format("{}{}{}, {} {}", name, name.empty() ? "" : ", ", at::get_cpu_capability(), threads,
                       threads == 1 ? "thread" : "threads");
}

void require_equal_arithmetic(Communicator& world)
{
    const std::vector<std::string> all = all_gather_bytes(world, arithmetic_text());
    for (std::size_t rank = 1; rank < all.size(); ++rank)
    {
        VALIDATE(all[rank] == all.front(), ConfigError,
                 "run.deterministic needs one kind of processor (rank 0 has '{}', rank {} '{}'; they round differently). start on "
                 "equal nodes with equal threads",
                 all.front(), rank, all[rank]);
    }
}

HeldParams held_params(const ShardedParams& params, std::int64_t unit)
{
    if (!params.comes_and_goes(FlatState::params, unit)) { return {buffer_view(params.buffer(FlatState::params, unit)), 0}; }
    const FlatUnit& of = params.flat().units[static_cast<std::size_t>(unit)];
    return {buffer_view(params.owned(FlatState::params, unit)),
            shard_index(params.layout(), params.coordinate()) * of.shard_elements};
}

bool changes_bits(const std::string& section_dot_key)
{
    // The order of axes and the split of layers decide in which order the ranks' shares of the norm are added.
    static constexpr std::array<const char*, 16> keys = {
        "layout.dp",         "layout.dp-shard", "layout.tp",       "layout.pp",             "layout.cp",
        "layout.ep",         "layout.zero",     "layout.schedule", "layout.virtual-stages", "layout.pp-split",
        "layout.axis-order", "layout.micro-batch", "layout.sequence-parallel", "run.threads", "run.device", "train.loss-chunks"};
    return std::find(keys.begin(), keys.end(), section_dot_key) != keys.end();
}

}  // namespace plimsoll::nn
