#pragma once
/// Degrees of parallelism of a run and the rules they must keep.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "layout/model_spec.hpp"
#include "layout/schedule_generators.hpp"

namespace plimsoll
{

/// Whether what a rank needs next is gathered while it computes.
enum class Prefetch : std::uint8_t { off, on };

/// How layers are dealt to virtual stages.
enum class SplitKind : std::uint8_t
{
    even,    ///< layers / virtual stages each, the remainder to the first ones
    by_cost, ///< so that the slowest virtual stage, embedding and head counted, is as fast as can be
    listed,
};

struct StageSplit
{
    SplitKind kind = SplitKind::even;
    std::vector<std::int64_t> layers; ///< of each virtual stage in turn when listed

    friend bool operator==(const StageSplit& a, const StageSplit& b) { return a.kind == b.kind && a.layers == b.layers; }
};
/// "even", "auto" (by_cost) or "7,9,9,7". @throws ConfigError
StageSplit parse_stage_split(const std::string& text);
std::string stage_split_text(const StageSplit& split);

enum class MeshAxis : std::uint8_t { tp = 0, cp = 1, dp = 2, pp = 3 };
constexpr int num_mesh_axes = 4;
/// The fastest axis first: neighbouring ranks differ in it.
using AxisOrder = std::array<MeshAxis, num_mesh_axes>;
constexpr AxisOrder default_axis_order = {MeshAxis::tp, MeshAxis::cp, MeshAxis::dp, MeshAxis::pp};
/// "tp,cp,ep,dp,pp" in any order; ep is carved from dp and cp and may be left out. @throws ConfigError
AxisOrder parse_axis_order(const std::string& text);

struct ParallelLayout
{
    std::int64_t dp = 1;
    std::int64_t tp = 1;
    std::int64_t pp = 1;
    std::int64_t cp = 1;
    std::int64_t ep = 1;
    /// 1: optimizer state is sharded; 2: gradients too, summed over the ranks after each micro-batch; 3: parameters too.
    int zero_stage = 0;
    std::int64_t dp_shard = 0;        ///< neighbouring dp ranks that share one copy of what is sharded; 0: all of dp
    std::int64_t bucket_bytes = std::int64_t{25} << 20;  ///< gradients that are reduced together, at least
    std::int64_t resident_bytes = std::int64_t{1} << 20; ///< zero 3: smaller units keep their parameters gathered
    Prefetch prefetch = Prefetch::on;                    ///< of zero 3
    /// Between the linears a rank holds its tp rank's share of a micro-batch's tokens only. Without effect where tp is 1.
    bool sequence_parallel = false;
    std::int64_t micro_batch = 1;   ///< sequences per micro-batch and data-parallel rank
    std::int64_t global_batch = 1;  ///< sequences per optimizer step
    PipelineKind schedule = PipelineKind::one_f_one_b;
    std::int64_t virtual_stages = 1;  ///< chunks of the model on a stage
    StageSplit split;
    AxisOrder axis_order = default_axis_order;

    std::int64_t num_virtual_stages() const { return pp * virtual_stages; }
    std::int64_t world() const { return dp * tp * pp * cp; }
    /// Parts that a unit is cut into, and ranks that hold the same part.
    std::int64_t shards() const { return dp_shard > 0 ? dp_shard : dp; }
    std::int64_t replicas() const { return dp / shards(); }
    bool shards_gradients() const { return zero_stage >= 2 && shards() > 1; }
    bool shards_parameters() const { return zero_stage >= 3 && shards() > 1; }
    /// Whether a batch of so many tokens is cut over tp. One of training always is where sequence_parallel has an effect
    /// (token_faults()); one of validation stays whole where its tokens do not divide.
    bool cuts_tokens(std::int64_t tokens) const { return sequence_parallel && tp > 1 && tokens % tp == 0; }
    /// Micro-batches per step and data-parallel rank. @pre validate() found nothing.
    std::int64_t accumulation() const { return global_batch / (dp * micro_batch); }
};

/// Violations that need no model: schedule, virtual stages and the batch that they take. @pre all degrees are at least 1
std::vector<std::string> schedule_faults(const ParallelLayout& layout);

/// Violations that need the length of a sequence.
std::vector<std::string> token_faults(const ParallelLayout& layout, std::int64_t seq_len);

/// The same layout on another number of stages: a list of layers goes with its number of stages and becomes even.
ParallelLayout with_pp(ParallelLayout layout, std::int64_t pp);

/// All violations, each a full message with its numbers and the nearest valid choice; empty when valid.
/// "20 attention heads cannot be split over tp 8 (heads are not cut). allowed tp: 1 2 4 5 10 20"
std::vector<std::string> validate(const ParallelLayout& layout, const ModelSpec& model, std::int64_t world);

/// "dp 4 (shards of 2) tp 2 (sequence parallel) zero 3": the degrees that are not 1.
std::string layout_text(const ParallelLayout& layout);

}  // namespace plimsoll
