#pragma once
/// Data order as a pure function of (seed, consumed samples): O(1) state, the same at every data-parallel size.
///
/// Sample k of a source of N = (tokens - 1) / seq_len samples is the window [k L, k L + L] of the virtual
/// concatenation: L inputs and L labels, one shared token, every token predicted once. Global position g: epoch g div
/// N, sample pi(seed, epoch)(g mod N). A batch may straddle epochs.

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.hpp"
#include "io/token_shard.hpp"

namespace plimsoll
{

/// Inputs, labels and weights of `num` sequences, row-major [num, seq_len].
struct TokenBatch
{
    std::int64_t num = 0;
    std::int64_t seq_len = 0;
    std::vector<std::int64_t> inputs;
    std::vector<std::int64_t> labels;
    std::vector<std::uint8_t> mask;  ///< 1 where the label counts
    std::int64_t num_valid = 0;      ///< sum of mask
};

/// Order of training samples. Memory: the permutation's table of at most 128 KiB, whatever the number of samples.
/// One thread at a time; each rank has its own. `source` outlives it.
class TokenOrder
{
  public:
    static constexpr const char* version = "feistel8-v1";

    /// @throws ConfigError when the source holds less than one sample ("holds 100 tokens, seq-len 256 needs 257").
    TokenOrder(const TokenSource& source, std::int64_t seq_len, std::uint64_t seed);

    std::int64_t num_samples() const { return num_samples_; }
    /// Sample id at global position `position` (samples consumed since step 0).
    std::int64_t sample_at(std::int64_t position) const;
    /// Reads positions [first, first + num).
    void read(std::int64_t first, std::int64_t num, TokenBatch& batch) const;
    /// sha256 over plan_fields(): order version, seq_len, tokenizer and the content of the shards; not their paths.
    std::string plan_hash() const;
    /// Hash fields in readable form, to name the one that differs: "seq-len 256", "shards 3", ...
    /// Their number does not depend on the number of shards.
    std::vector<std::string> plan_fields() const;

  private:
    const TokenSource& source_;
    std::int64_t seq_len_;
    std::uint64_t seed_;
    std::int64_t num_samples_ = 0;
    mutable std::int64_t cached_epoch_ = -1;
    mutable KeyedPermutation permutation_{0, 0, 0, 0};
};

/// The first field that differs between two results of plan_fields(), "seq-len 256 -> 512"; empty when there is none.
std::string plan_difference(const std::vector<std::string>& old_fields, const std::vector<std::string>& new_fields);

/// A fixed evaluation set: `max_tokens` labels (-1: all) from the start of the source in windows of seq_len, the last
/// padded and masked, so that each token after the first counts exactly once. Thread-safe; `source` outlives it.
class EvaluationSet
{
  public:
    /// @throws ConfigError when the source holds no label (fewer than 2 tokens)
    EvaluationSet(const TokenSource& source, std::int64_t seq_len, std::int64_t max_tokens);
    std::int64_t num_sequences() const { return num_sequences_; }
    std::int64_t num_tokens() const { return num_tokens_; }  ///< labels, masked ones of the shards included
    /// UTF-8 bytes per token of the source, for bits per byte.
    double bytes_per_token() const { return bytes_per_token_; }
    void read(std::int64_t first, std::int64_t num, TokenBatch& batch) const;

  private:
    const TokenSource& source_;
    std::int64_t seq_len_;
    std::int64_t num_tokens_ = 0;
    std::int64_t num_sequences_ = 0;
    double bytes_per_token_ = 0;
};

}  // namespace plimsoll
