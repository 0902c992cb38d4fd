#include "io/token_order.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "io/fim.hpp"

namespace plimsoll
{

namespace
{

void resize(TokenBatch& batch, std::int64_t num, std::int64_t seq_len)
{
    const auto size = static_cast<std::size_t>(num * seq_len);
    batch.num = num;
    batch.seq_len = seq_len;
    batch.inputs.resize(size);
    batch.labels.resize(size);
    batch.mask.resize(size);
    batch.num_valid = 0;
    batch.document_starts.clear();
}

void read_window(const TokenSource& source, std::int64_t begin, std::int64_t num_labels, std::vector<std::int64_t>& tokens,
                 std::vector<std::uint8_t>& mask)
{
    tokens.resize(static_cast<std::size_t>(num_labels + 1));
    mask.resize(tokens.size());
    source.read(begin, num_labels + 1, tokens.data(), mask.data());
}

/// Row `row` from a window of num_labels + 1 tokens; the rest of the row is padding.
void fill_row(const std::vector<std::int64_t>& tokens, const std::vector<std::uint8_t>& mask, std::int64_t row, TokenBatch& batch)
{
    const auto num_labels = static_cast<std::int64_t>(tokens.size()) - 1;
    const std::int64_t at = row * batch.seq_len;
    std::copy(tokens.begin(), tokens.end() - 1, batch.inputs.begin() + at);
    std::copy(tokens.begin() + 1, tokens.end(), batch.labels.begin() + at);
    std::copy(mask.begin() + 1, mask.end(), batch.mask.begin() + at);
    std::fill(batch.inputs.begin() + at + num_labels, batch.inputs.begin() + at + batch.seq_len, 0);
    std::fill(batch.labels.begin() + at + num_labels, batch.labels.begin() + at + batch.seq_len, 0);
    std::fill(batch.mask.begin() + at + num_labels, batch.mask.begin() + at + batch.seq_len, std::uint8_t{0});
    for (std::int64_t i = 0; i < num_labels; ++i) { batch.num_valid += batch.mask[static_cast<std::size_t>(at + i)]; }
}

/// Where row `row` begins anew; `begins` are places in its window. The last token of a window is a label only, and what is behind it padding.
void add_starts(const std::vector<std::int64_t>& begins, std::int64_t num_labels, std::int64_t row, TokenBatch& batch)
{
    const std::int64_t at = row * batch.seq_len;
    for (const std::int64_t begin : begins)
    {
        if (begin < num_labels) { batch.document_starts.push_back(at + begin); }
    }
    if (num_labels < batch.seq_len) { batch.document_starts.push_back(at + num_labels); }
}

/// Places of pieces in a window that begins at token `begin` of their source.
void append_begins(const std::vector<DocumentPiece>& pieces, std::int64_t begin, std::vector<std::int64_t>& begins)
{
    for (const DocumentPiece& piece : pieces) { begins.push_back(piece.begin - begin); }
}

constexpr std::uint64_t stream_stage = 11;

/// Reads the ends of all documents once.
PackPlan plan_packing(const TokenSource& source, std::int64_t seq_len)
{
    constexpr std::int64_t stretch = std::int64_t{1} << 22;
    return PackPlan(seq_len,
                    [&](const std::function<void(std::int64_t)>& take)
                    {
                        std::int64_t length = 0;
                        for (std::int64_t begin = 0; begin < source.num_tokens(); begin += stretch)
                        {
                            for (const DocumentPiece& piece : source.pieces(begin, std::min(stretch, source.num_tokens() - begin)))
                            {
                                length += piece.end - piece.begin;
                                if (!piece.ends_here) { continue; }
                                take(length);
                                length = 0;
                            }
                        }
                    });
}

std::vector<PackPlan> plan_packing(const std::vector<OrderSource>& sources, const OrderSettings& settings)
{
    std::vector<PackPlan> plans;
    for (const OrderSource& source : sources)
    {
        if (settings.best_fit && settings.seq_len > 0) { plans.push_back(plan_packing(*source.tokens, settings.seq_len)); }
    }
    return plans;
}

/// Lines of a plan: what stands before the first space, and what behind it.
using PlanLines = std::map<std::string, std::string>;

PlanLines lines_of(const std::vector<std::string>& fields)
{
    PlanLines lines;
    for (const std::string& field : fields)
    {
        const std::size_t space = field.find(' ');
        lines[field.substr(0, space)] = space == std::string::npos ? "" : field.substr(space + 1);
    }
    return lines;
}

std::string value_of(const PlanLines& lines, const std::string& name)
{
    const auto found = lines.find(name);
    return found == lines.end() ? std::string("(not set)") : found->second;
}

std::string append_fault_of_source(const PlanLines& old, const std::string& prefix, const TokenOrder& now, std::size_t source)
{
    const std::string& name = now.sources()[source].name;
    const std::string shown = name.empty() ? "the data" : "'" + name + "'";
    const std::vector<TokenShardInfo>& shards = now.sources()[source].tokens->shards();
    const std::string tokenizer = fmt::format("{} {}", shards.front().tokenizer, shards.front().fingerprint);
    if (value_of(old, prefix + "tokenizer") != tokenizer) { return fmt::format("{} has another tokenizer", shown); }
    const std::size_t num_old = std::stoul(value_of(old, prefix + "shards"));
    if (num_old > shards.size()) { return fmt::format("{} had {} shards and now has {}", shown, num_old, shards.size()); }
    if (now.content_of(source, num_old) != value_of(old, prefix + "content"))
    {
        return fmt::format("the first {} shards of {} are not the old ones", num_old, shown);
    }
    return "";
}

}  // namespace

std::uint64_t stage_seed(std::uint64_t seed, std::int64_t base)
{
    return base == 0 ? seed : hash_numbers({seed, stream_stage, static_cast<std::uint64_t>(base)});
}

TokenOrder::TokenOrder(const TokenSource& source, std::int64_t seq_len, std::uint64_t seed)
    : TokenOrder({OrderSource{"", &source, 1.0}}, OrderSettings{seq_len, seed, Shuffle(), Fim(), false, false})
{
}

TokenOrder::TokenOrder(std::vector<OrderSource> sources, const OrderSettings& settings)
    : sources_(std::move(sources)),
      settings_(settings),
      plans_(plan_packing(sources_, settings)),
      samples_(make_samples(settings.seed))
{
    for (std::int64_t d = 0; d < samples_.num_sources(); ++d) { num_samples_ += samples_.size(d); }
    for (const OrderSource& source : sources_)
    {
        VALIDATE(settings_.fim.rate <= 0 || !source.tokens->has_loss_mask(), ConfigError,
                 "the data{} has a loss mask (fim would tear it from its tokens). leave fim-rate at 0",
                 source.name.empty() ? "" : " of '" + source.name + "'");
    }
}

std::int64_t TokenOrder::samples_in(std::size_t source) const
{
    const std::int64_t tokens = sources_[source].tokens->num_tokens();
    const std::int64_t samples = plans_.empty() ? (tokens - 1) / settings_.seq_len : plans_[source].num_samples();
    VALIDATE(samples > 0, ConfigError, "the data{} holds {} tokens (seq-len {} needs {}). use a shorter seq-len or more text",
             sources_[source].name.empty() ? "" : " of '" + sources_[source].name + "'", tokens, settings_.seq_len,
             plans_.empty() ? settings_.seq_len + 1 : 2);
    return samples;
}

double TokenOrder::filled() const
{
    std::int64_t labels = 0;
    for (const PackPlan& plan : plans_) { labels += plan.num_labels(); }
    return plans_.empty() ? 1.0 : static_cast<double>(labels) / static_cast<double>(num_samples_ * settings_.seq_len);
}

SampleOrder TokenOrder::make_samples(std::uint64_t seed) const
{
    VALIDATE(settings_.seq_len > 0, ConfigError, "seq-len {} is not positive", settings_.seq_len);
    std::vector<SampleSource> sources;
    for (std::size_t d = 0; d < sources_.size(); ++d)
    {
        SampleSource made;
        made.name = sources_[d].name;
        made.size = samples_in(d);
        made.weight = sources_[d].weight;
        sources.push_back(std::move(made));
    }
    return SampleOrder(sources, settings_.shuffle.kind, settings_.shuffle.window_tokens / settings_.seq_len, seed);
}

void TokenOrder::begin_stage(std::int64_t base)
{
    EXPECT(base >= 0);
    stage_base_ = base;
    samples_ = make_samples(stage_seed(settings_.seed, base));
}

std::vector<std::int64_t> TokenOrder::counts(std::int64_t end) const
{
    return samples_.counts(std::max<std::int64_t>(0, end - stage_base_));
}

SampleId TokenOrder::id_at(std::int64_t position) const
{
    EXPECT(position >= stage_base_);
    return samples_.at(position - stage_base_);
}

/// The window of one sample.
struct TokenOrder::Row
{
    std::vector<std::int64_t> tokens;
    std::vector<std::uint8_t> mask;
    std::vector<std::int64_t> begins;  ///< of documents, places in `tokens`; only with document masks
};

void TokenOrder::read(std::int64_t first, std::int64_t num, TokenBatch& batch) const
{
    EXPECT(first >= 0 && num >= 0);
    resize(batch, num, settings_.seq_len);
    Row window;
    for (std::int64_t row = 0; row < num; ++row)
    {
        const SampleId id = id_at(first + row);
        window.begins.clear();
        if (!plans_.empty()) { read_packed(id, window); }
        else { read_windowed(id, window); }
        fill_row(window.tokens, window.mask, row, batch);
        if (settings_.document_masks)
        {
            add_starts(window.begins, static_cast<std::int64_t>(window.tokens.size()) - 1, row, batch);
        }
    }
    if (settings_.document_masks) { batch.document_starts.push_back(num * settings_.seq_len); }
}

/// The end of a document stays its end.
void TokenOrder::rearrange(const SampleId& id, const std::vector<DocumentPiece>& pieces, std::int64_t begin,
                           std::int64_t* tokens) const
{
    FimPiece key;
    key.seed = samples_.seed(id.source);
    key.epoch = id.epoch;
    key.sample = id.sample;
    for (const DocumentPiece& piece : pieces)
    {
        key.document = piece.document;
        fill_in_the_middle(settings_.fim, key, tokens + (piece.begin - begin), piece.end - piece.begin - (piece.ends_here ? 1 : 0));
    }
}

void TokenOrder::read_windowed(const SampleId& id, Row& row) const
{
    const TokenSource& source = *sources_[static_cast<std::size_t>(id.source)].tokens;
    const std::int64_t begin = id.sample * settings_.seq_len;
    read_window(source, begin, settings_.seq_len, row.tokens, row.mask);
    if (settings_.fim.rate <= 0 && !settings_.document_masks) { return; }
    const std::vector<DocumentPiece> pieces = source.pieces(begin, settings_.seq_len + 1);
    if (settings_.fim.rate > 0) { rearrange(id, pieces, begin, row.tokens.data()); }
    if (settings_.document_masks) { append_begins(pieces, begin, row.begins); }
}

/// Nothing is predicted across documents: the first token of a piece is no label.
void TokenOrder::read_packed(const SampleId& id, Row& row) const
{
    const auto d = static_cast<std::size_t>(id.source);
    const TokenSource& source = *sources_[d].tokens;
    row.tokens.clear();
    row.mask.clear();
    for (const PackPiece& piece : plans_[d].pieces(id.sample))
    {
        const std::size_t at = row.tokens.size();
        row.tokens.resize(at + static_cast<std::size_t>(piece.length));
        row.mask.resize(row.tokens.size());
        source.read(piece.begin, piece.length, row.tokens.data() + at, row.mask.data() + at);
        if (settings_.fim.rate > 0)
        {
            rearrange(id, source.pieces(piece.begin, piece.length), piece.begin, row.tokens.data() + at);
        }
        if (settings_.document_masks) { row.begins.push_back(static_cast<std::int64_t>(at)); }
        row.mask[at] = 0;
    }
}

std::string TokenOrder::content_of(std::size_t source, std::size_t num_shards) const
{
    std::string content;
    const std::vector<TokenShardInfo>& shards = sources_[source].tokens->shards();
    EXPECT(num_shards <= shards.size());
    for (std::size_t i = 0; i < num_shards; ++i)
    {
        content += fmt::format("{} {:08x} {} {:08x}\n", shards[i].num_tokens, shards[i].tokens_crc, shards[i].has_loss_mask,
                               shards[i].loss_mask_crc);
    }
    return sha256_hex(content);
}

std::vector<std::string> TokenOrder::plan_fields() const
{
    std::vector<std::string> fields = {fmt::format("order {}", version), fmt::format("seq-len {}", settings_.seq_len), "overlap 1"};
    if (settings_.shuffle.kind == Shuffle::Kind::none) { fields.push_back("shuffle none"); }
    if (settings_.shuffle.kind == Shuffle::Kind::window)
    {
        fields.push_back(fmt::format("shuffle window-v1 {}", samples_.pool_samples()));
    }
    if (settings_.best_fit) { fields.push_back("packing best-fit-v1"); }
    const Fim& fim = settings_.fim;
    if (fim.rate > 0)
    {
        fields.push_back(fmt::format("fim v1 {} {} {} {} {}", fim.rate, fim.spm_rate, fim.prefix, fim.suffix, fim.middle));
    }
    const bool is_blend = sources_.size() > 1;
    if (is_blend) { fields.push_back("blend even-v1"); }
    for (std::size_t d = 0; d < sources_.size(); ++d)
    {
        const TokenSource& tokens = *sources_[d].tokens;
        const TokenShardInfo& first = tokens.shards().front();
        const std::string of = is_blend ? sources_[d].name + "." : "";
        if (is_blend)
        {
            const double slots = samples_.share(static_cast<std::int64_t>(d)) * static_cast<double>(BlendOrder::block_positions);
            fields.push_back(fmt::format("{}share {}/{}", of, static_cast<std::int64_t>(slots), BlendOrder::block_positions));
        }
        fields.push_back(fmt::format("{}tokenizer {} {}", of, first.tokenizer, first.fingerprint));
        fields.push_back(fmt::format("{}vocab {}", of, first.vocab));
        fields.push_back(fmt::format("{}shards {}", of, tokens.shards().size()));
        fields.push_back(fmt::format("{}tokens {}", of, tokens.num_tokens()));
        fields.push_back(fmt::format("{}content {}", of, content_of(d, tokens.shards().size())));
    }
    return fields;
}

std::string TokenOrder::plan_hash() const { return sha256_hex(fmt::format("{}", fmt::join(plan_fields(), "\n"))); }

std::string append_fault(const std::vector<std::string>& old_fields, const TokenOrder& now)
{
    const PlanLines old = lines_of(old_fields), present = lines_of(now.plan_fields());
    for (const char* field : {"order", "seq-len", "overlap", "shuffle", "packing", "fim"})
    {
        if (value_of(old, field) != value_of(present, field))
        {
            return fmt::format("{} {} -> {}", field, value_of(old, field), value_of(present, field));
        }
    }
    const std::string counted = "shards";
    std::set<std::string> gone;  // prefixes of sources
    for (const auto& line : old)
    {
        const std::size_t at = line.first.size() < counted.size() ? std::string::npos : line.first.size() - counted.size();
        if (at != std::string::npos && line.first.compare(at, counted.size(), counted) == 0) { gone.insert(line.first.substr(0, at)); }
    }
    for (std::size_t d = 0; d < now.sources().size(); ++d)
    {
        std::string prefix = now.sources()[d].name + ".";
        // The lines of a run with one source carry no name: it is the first one now.
        if (gone.count(prefix) == 0 && d == 0) { prefix.clear(); }
        if (gone.erase(prefix) == 0) { continue; }
        const std::string fault = append_fault_of_source(old, prefix, now, d);
        if (!fault.empty()) { return fault; }
    }
    return gone.empty() ? "" : fmt::format("'{}' is gone", gone.begin()->substr(0, gone.begin()->find('.')));
}

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

EvaluationSet::EvaluationSet(const TokenSource& source, std::int64_t seq_len, std::int64_t max_tokens, bool document_masks)
    : source_(source),
      seq_len_(seq_len),
      document_masks_(document_masks)
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
    std::vector<std::int64_t> begins;
    for (std::int64_t row = 0; row < num; ++row)
    {
        const std::int64_t begin = (first + row) * seq_len_;
        const std::int64_t num_labels = std::min(seq_len_, num_tokens_ - begin);
        read_window(source_, begin, num_labels, tokens, mask);
        fill_row(tokens, mask, row, batch);
        if (!document_masks_) { continue; }
        begins.clear();
        append_begins(source_.pieces(begin, num_labels), begin, begins);
        add_starts(begins, num_labels, row, batch);
    }
    if (document_masks_) { batch.document_starts.push_back(num * seq_len_); }
}

}  // namespace plimsoll
