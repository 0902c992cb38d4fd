#include "io/token_order.hpp"

#include <algorithm>

#include "base/digest.hpp"
#include "base/error.hpp"

namespace plimsoll
{

namespace
{

/// Keeps the order of samples apart from other permutations of the same seed.
constexpr auto order_stream = static_cast<std::uint64_t>(RngPurpose::data_order);

void resize(TokenBatch& batch, std::int64_t num, std::int64_t seq_len)
{
    const auto size = static_cast<std::size_t>(num * seq_len);
    batch.num = num;
    batch.seq_len = seq_len;
    batch.inputs.resize(size);
    batch.labels.resize(size);
    batch.mask.resize(size);
    batch.num_valid = 0;
}

/// Row `row` from the tokens [begin, begin + num_labels + 1); the rest of the row is padding.
void fill_row(const TokenSource& source, std::int64_t begin, std::int64_t num_labels, std::int64_t row,
              TokenBatch& batch, std::vector<std::int64_t>& tokens, std::vector<std::uint8_t>& mask)
{
    tokens.resize(static_cast<std::size_t>(num_labels + 1));
    mask.resize(tokens.size());
    source.read(begin, num_labels + 1, tokens.data(), mask.data());
    const std::int64_t at = row * batch.seq_len;
    std::copy(tokens.begin(), tokens.end() - 1, batch.inputs.begin() + at);
    std::copy(tokens.begin() + 1, tokens.end(), batch.labels.begin() + at);
    std::copy(mask.begin() + 1, mask.end(), batch.mask.begin() + at);
    std::fill(batch.inputs.begin() + at + num_labels, batch.inputs.begin() + at + batch.seq_len, 0);
    std::fill(batch.labels.begin() + at + num_labels, batch.labels.begin() + at + batch.seq_len, 0);
    std::fill(batch.mask.begin() + at + num_labels, batch.mask.begin() + at + batch.seq_len, std::uint8_t{0});
    for (std::int64_t i = 0; i < num_labels; ++i) { batch.num_valid += batch.mask[static_cast<std::size_t>(at + i)]; }
}

}  // namespace

TokenOrder::TokenOrder(const TokenSource& source, std::int64_t seq_len, std::uint64_t seed)
    : source_(source),
      seq_len_(seq_len),
      seed_(seed),
      num_samples_(seq_len > 0 ? (source.num_tokens() - 1) / seq_len : 0)
{
    VALIDATE(seq_len > 0, ConfigError, "seq-len {} is not positive", seq_len);
    VALIDATE(num_samples_ > 0, ConfigError,
             "the data holds {} tokens (seq-len {} needs {}). use a shorter seq-len or more text", source.num_tokens(),
             seq_len, seq_len + 1);
}

std::int64_t TokenOrder::sample_at(std::int64_t position) const
{
    EXPECT(position >= 0);
    const std::int64_t epoch = position / num_samples_;
    if (epoch != cached_epoch_)
    {
        permutation_ = KeyedPermutation(static_cast<std::uint64_t>(num_samples_), seed_, order_stream,
                                        static_cast<std::uint64_t>(epoch));
        cached_epoch_ = epoch;
    }
    return static_cast<std::int64_t>(permutation_(static_cast<std::uint64_t>(position % num_samples_)));
}

void TokenOrder::read(std::int64_t first, std::int64_t num, TokenBatch& batch) const
{
    EXPECT(first >= 0 && num >= 0);
    resize(batch, num, seq_len_);
    std::vector<std::int64_t> tokens;
    std::vector<std::uint8_t> mask;
    for (std::int64_t row = 0; row < num; ++row)
    {
        fill_row(source_, sample_at(first + row) * seq_len_, seq_len_, row, batch, tokens, mask);
    }
}

std::vector<std::string> TokenOrder::plan_fields() const
{
    std::string content;
    for (const TokenShardInfo& info : source_.shards())
    {
        content += fmt::format("{} {:08x} {} {:08x}\n", info.num_tokens, info.tokens_crc, info.has_loss_mask,
                               info.loss_mask_crc);
    }
    const TokenShardInfo& first = source_.shards().front();
    return {fmt::format("order {}", version),
            fmt::format("seq-len {}", seq_len_),
            "overlap 1",
            fmt::format("tokenizer {} {}", first.tokenizer, first.fingerprint),
            fmt::format("vocab {}", first.vocab),
            fmt::format("shards {}", source_.shards().size()),
            fmt::format("tokens {}", source_.num_tokens()),
            fmt::format("content {}", sha256_hex(content))};
}

std::string TokenOrder::plan_hash() const { return sha256_hex(fmt::format("{}", fmt::join(plan_fields(), "\n"))); }

std::string plan_difference(const std::vector<std::string>& old_fields, const std::vector<std::string>& new_fields)
{
    for (std::size_t i = 0; i < std::max(old_fields.size(), new_fields.size()); ++i)
    {
        if (i >= old_fields.size()) { return fmt::format("(not set) -> {}", new_fields[i]); }
        if (i >= new_fields.size()) { return fmt::format("{} -> (not set)", old_fields[i]); }
        if (old_fields[i] == new_fields[i]) { continue; }
        const std::size_t space = new_fields[i].find(' ');
        const bool same_name =
            space != std::string::npos && old_fields[i].compare(0, space + 1, new_fields[i], 0, space + 1) == 0;
        return fmt::format("{} -> {}", old_fields[i], same_name ? new_fields[i].substr(space + 1) : new_fields[i]);
    }
    return "";
}

EvaluationSet::EvaluationSet(const TokenSource& source, std::int64_t seq_len, std::int64_t max_tokens)
    : source_(source),
      seq_len_(seq_len)
{
    VALIDATE(seq_len > 0, ConfigError, "seq-len {} is not positive", seq_len);
    VALIDATE(source.num_tokens() >= 2, ConfigError, "the evaluation data holds {} tokens (2 are needed for one label)",
             source.num_tokens());
    num_tokens_ = source.num_tokens() - 1;
    if (max_tokens >= 0) { num_tokens_ = std::min(num_tokens_, max_tokens); }
    num_sequences_ = (num_tokens_ + seq_len_ - 1) / seq_len_;
    bytes_per_token_ = static_cast<double>(source.text_bytes()) / static_cast<double>(source.num_tokens());
}

void EvaluationSet::read(std::int64_t first, std::int64_t num, TokenBatch& batch) const
{
    EXPECT(first >= 0 && num >= 0 && first + num <= num_sequences_);
    resize(batch, num, seq_len_);
    std::vector<std::int64_t> tokens;
    std::vector<std::uint8_t> mask;
    for (std::int64_t row = 0; row < num; ++row)
    {
        const std::int64_t begin = (first + row) * seq_len_;
        fill_row(source_, begin, std::min(seq_len_, num_tokens_ - begin), row, batch, tokens, mask);
    }
}

}  // namespace plimsoll
