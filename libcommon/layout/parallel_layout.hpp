#pragma once
/// Degrees of parallelism of a run and the rules they must keep.

#include <cstdint>
#include <string>
#include <vector>

#include "layout/model_spec.hpp"

namespace plimsoll
{

struct ParallelLayout
{
    std::int64_t dp = 1;
    std::int64_t tp = 1;
    std::int64_t pp = 1;
    std::int64_t cp = 1;
    std::int64_t ep = 1;
    int zero_stage = 0;
    std::int64_t micro_batch = 1;   ///< sequences per micro-batch and data-parallel rank
    std::int64_t global_batch = 1;  ///< sequences per optimizer step

    std::int64_t world() const { return dp * tp * pp * cp; }
    /// Micro-batches per step and data-parallel rank. @pre validate() found nothing.
    std::int64_t accumulation() const { return global_batch / (dp * micro_batch); }
};

/// All violations, each a full message with its numbers and the nearest valid choice; empty when valid.
/// "20 attention heads cannot be split over tp 8 (heads are not cut). allowed tp: 1 2 4 5 10 20"
std::vector<std::string> validate(const ParallelLayout& layout, const ModelSpec& model, std::int64_t world);

}  // namespace plimsoll
