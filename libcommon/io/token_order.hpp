#pragma once
/// Training batches as a pure function of (seed, consumed samples): O(1) state, the same at every data-parallel size.
///
/// Sample k of a source of N = (tokens - 1) / seq_len samples is the window [k L, k L + L] of the virtual
/// concatenation: L inputs and L labels, one shared token, every token predicted once. Which sample stands where:
/// io/sample_order.hpp. A batch may straddle epochs.

#include <cstdint>
#include <string>
#include <vector>

#include "io/pack_plan.hpp"
#include "io/sample_order.hpp"
#include "io/token_batch.hpp"
#include "io/token_shard.hpp"
#include "layout/run_config.hpp"

namespace plimsoll
{

/// One source of a blend; `tokens` outlives the order.
struct OrderSource
{
    std::string name;  ///< of [data.NAME]
    const TokenSource* tokens = nullptr;
    double weight = 1;
};

struct OrderSettings
{
    std::int64_t seq_len = 0;
    std::uint64_t seed = 0;
    Shuffle shuffle;
    Fim fim;
    bool best_fit = false;  ///< packing
    bool document_masks = false;  ///< batches say where documents begin; the order is the same with and without
};

/// Order of training samples. Memory: that of SampleOrder, whatever the number of samples; with best-fit that of a PackPlan too.
/// One thread at a time; each rank has its own.
class TokenOrder
{
  public:
    static constexpr const char* version = "feistel8-v1";

    /// One source, shuffle global.
    TokenOrder(const TokenSource& source, std::int64_t seq_len, std::uint64_t seed);
    /// @throws ConfigError for fim on a source with a loss mask, when a source holds less than one sample ("holds 100 tokens, seq-len 256 needs 257"), and as
    /// BlendOrder
    TokenOrder(std::vector<OrderSource> sources, const OrderSettings& settings);

    /// Of all sources together: what an epoch of the run is.
    std::int64_t num_samples() const { return num_samples_; }
    const std::vector<OrderSource>& sources() const { return sources_; }
    const SampleOrder& samples() const { return samples_; }
    /// Sample at global position `position` (samples consumed since step 0).
    SampleId id_at(std::int64_t position) const;
    /// The same with one source: its sample.
    std::int64_t sample_at(std::int64_t position) const { return id_at(position).sample; }
    /// Reads positions [first, first + num).
    void read(std::int64_t first, std::int64_t num, TokenBatch& batch) const;

    /// From `base` on the order begins anew, under a key of its own: data that was changed in the middle of a run. Positions
    /// before it are then no more at hand. 0: the stage that a run begins with.
    void begin_stage(std::int64_t base);
    std::int64_t stage_base() const { return stage_base_; }
    /// Share of the places for labels that are filled; 1 unless packed.
    double filled() const;
    /// Of positions [stage_base, end), how many each source has.
    std::vector<std::int64_t> counts(std::int64_t end) const;

    /// sha256 over plan_fields(): order version, seq_len, tokenizer and the content of the shards; not their paths.
    std::string plan_hash() const;
    /// Hash fields in readable form, to name the one that differs: "seq-len 256", "shards 3", ...
    /// Their number does not depend on the number of shards.
    std::vector<std::string> plan_fields() const;
    /// What plan_fields() says of the content of the first `num_shards` shards of a source.
    std::string content_of(std::size_t source, std::size_t num_shards) const;

  private:
    struct Row;
    void rearrange(const SampleId& id, const std::vector<DocumentPiece>& pieces, std::int64_t begin, std::int64_t* tokens) const;
    void read_windowed(const SampleId& id, Row& row) const;
    void read_packed(const SampleId& id, Row& row) const;
    std::int64_t samples_in(std::size_t source) const;
    SampleOrder make_samples(std::uint64_t seed) const;

    std::vector<OrderSource> sources_;
    OrderSettings settings_;
    std::vector<PackPlan> plans_;  ///< of the sources, with best-fit
    std::int64_t num_samples_ = 0;
    std::int64_t stage_base_ = 0;
    SampleOrder samples_;
};

/// A later stage is keyed by its base too.
std::uint64_t stage_seed(std::uint64_t seed, std::int64_t base);

/// The first field that differs between two results of plan_fields(), "seq-len 256 -> 512"; empty when there is none.
std::string plan_difference(const std::vector<std::string>& old_fields, const std::vector<std::string>& new_fields);

/// Why the data of `now` is not the data of `old_fields` with more behind it; empty when it is. Old shards must come first in their
/// source, old sources may not go; shares may change.
std::string append_fault(const std::vector<std::string>& old_fields, const TokenOrder& now);

/// A fixed evaluation set: `max_tokens` labels (-1: all) from the start of the source in windows of seq_len, the last
/// padded and masked, so that each token after the first counts exactly once. Thread-safe; `source` outlives it.
class EvaluationSet
{
  public:
    /// @throws ConfigError when the source holds no label (fewer than 2 tokens)
    EvaluationSet(const TokenSource& source, std::int64_t seq_len, std::int64_t max_tokens, bool document_masks = false);
    std::int64_t num_sequences() const { return num_sequences_; }
    std::int64_t num_tokens() const { return num_tokens_; }  ///< labels, masked ones of the shards included
    /// UTF-8 bytes per token of the source, for bits per byte.
    double bytes_per_token() const { return bytes_per_token_; }
    void read(std::int64_t first, std::int64_t num, TokenBatch& batch) const;

  private:
    const TokenSource& source_;
    std::int64_t seq_len_;
    bool document_masks_;
    std::int64_t num_tokens_ = 0;
    std::int64_t num_sequences_ = 0;
    double bytes_per_token_ = 0;
};

}  // namespace plimsoll
