#include "io/tokenizer/subword_model.hpp"

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "io/tokenizer/utf8_step.hpp"

namespace plimsoll
{

namespace
{

constexpr std::string_view subword_space = "\xE2\x96\x81";

/// Words of a word model: each space starts one.
std::size_t next_space(std::string_view text, std::size_t position)
{
    const std::size_t found = text.find(subword_space, position + 1);
    return found == std::string_view::npos ? text.size() : found;
}

}  // namespace

void CharacterSymbols::set(std::uint32_t character, std::uint32_t symbol)
{
    std::uint16_t& page = page_of_[character >> 8];
    if (page == 0)
    {
        page = static_cast<std::uint16_t>(pages_.size());
        pages_.emplace_back().fill(Symbol::none);
    }
    pages_[page][character & 0xFF] = symbol;
}

SubwordEncoder::SubwordEncoder(const SubwordModel& model) : model_(model)
{
    if (model.kind == SubwordModel::Kind::unigram) { margins_.resize(cache_.size()); }
}

void SubwordEncoder::encode(std::string_view text, std::vector<std::uint32_t>& ids, EncodeCounts& counts)
{
    previous_unknown_ = false;
    float_sum_ = 0;
    double_sum_ = 0;
    splits_.clear();
    for (std::size_t at = 0; at < text.size();)
    {
        const std::size_t end = model_.kind == SubwordModel::Kind::word ? next_space(text, at)
                                : model_.can_cut                        ? model_.cuts.next_cut(text, at)
                                                                        : text.size();
        encode_word(text.substr(at, end - at), ids, counts);
        at = end;
    }
}

void SubwordEncoder::encode_word(std::string_view word, std::vector<std::uint32_t>& ids, EncodeCounts& counts)
{
    Found found;
    if (word.size() > WordCache::max_bytes || !model_.can_cut)
    {
        compute(word, found);
        append_word(word_ids_.data(), word_ids_.size(), found, ids, counts);
        return;
    }
    WordCache::Entry& entry = cache_.find(word);
    ++counts.cache_lookups;
    if (entry.bytes != 0 && use_cached(entry))
    {
        ++counts.cache_hits;
        append_word(entry.ids, entry.num_ids, {entry.num_unknown, entry.num_bytes_ids}, ids, counts);
        return;
    }
    const double margin = compute(word, found);
    keep(entry, word, found, margin);
    append_word(word_ids_.data(), word_ids_.size(), found, ids, counts);
}

void SubwordEncoder::append_word(const std::uint32_t* ids, std::size_t num, const Found& found,
                                 std::vector<std::uint32_t>& out, EncodeCounts& counts)
{
    if (num == 0) { return; }
    if (found.unknown != 0 || found.bytes != 0)
    {
        counts.unknown += found.unknown;
        counts.byte_fallback += found.bytes;
        if (previous_unknown_ && model_.fuse_unknown && found.unknown != 0 && ids[0] == model_.unknown_id)
        {
            ++ids;
            --num;
            --counts.unknown;
            if (num == 0) { return; }
        }
    }
    out.insert(out.end(), ids, ids + num);
    previous_unknown_ = found.unknown != 0 && ids[num - 1] == model_.unknown_id;
}

bool SubwordEncoder::beats_rounding(double margin, std::size_t bytes) const
{
    // Two ways of at most `bytes` sums each, every sum rounded to half a unit in the last place; a little more for the margin
    // itself, which was computed in double.
    const double unit = model_.double_sums ? 0x1p-52 : 0x1p-23;
    const double sum = std::abs(model_.double_sums ? double_sum_ : static_cast<double>(float_sum_));
    const auto n = static_cast<double>(bytes + 1);
    if (!model_.double_sums && sum + n * model_.unigram.largest_score > 99000) { return false; }
    return margin > n * 1.1 * unit * (sum + n * model_.unigram.largest_score);
}

bool SubwordEncoder::use_cached(const WordCache::Entry& entry)
{
    if (model_.kind != SubwordModel::Kind::unigram) { return true; }
    if (!beats_rounding(static_cast<double>(margins_[cache_.index(entry)]), entry.bytes)) { return false; }
    for (std::size_t i = 0; i < entry.num_ids; ++i)
    {
        const double score = model_.unigram.scores[entry.ids[i]];
        float_sum_ = static_cast<float>(score + static_cast<double>(float_sum_));
        double_sum_ += score;
    }
    return true;
}

void SubwordEncoder::keep(WordCache::Entry& entry, std::string_view word, const Found& found, double margin)
{
    const bool unigram = model_.kind == SubwordModel::Kind::unigram;
    // The scores of unknown characters are not in the ids, so that the sum could not be followed.
    if (word_ids_.size() > WordCache::max_ids || (unigram && (found.unknown != 0 || found.bytes != 0 || margin <= 0)))
    {
        entry.bytes = 0;
        return;
    }
    WordCache::set_word(entry, word);
    entry.num_ids = static_cast<std::uint8_t>(word_ids_.size());
    for (std::size_t i = 0; i < word_ids_.size(); ++i) { entry.ids[i] = word_ids_[i]; }
    entry.num_unknown = static_cast<std::uint8_t>(found.unknown);
    entry.num_bytes_ids = static_cast<std::uint8_t>(found.bytes);
    // Rounded down.
    if (unigram) { margins_[cache_.index(entry)] = static_cast<float>(std::min(margin, 1e30) * 0.999999); }
}

double SubwordEncoder::compute(std::string_view word, Found& found)
{
    word_ids_.clear();
    switch (model_.kind)
    {
        case SubwordModel::Kind::unigram: return compute_unigram(word, found);
        case SubwordModel::Kind::word:
        {
            const auto known = model_.words.find(std::string(word));
            if (known == model_.words.end()) { emit_unknown(word, found); }
            else { word_ids_.push_back(known->second); }
            break;
        }
        case SubwordModel::Kind::bpe:
        case SubwordModel::Kind::character: compute_bpe(word, found); break;
    }
    return std::numeric_limits<double>::infinity();
}

void SubwordEncoder::start_symbols(std::string_view word)
{
    symbols_.clear();
    for (std::size_t at = 0; at < word.size();)
    {
        if (!model_.frozen.empty())
        {
            const DoubleArray::Match match = model_.frozen.longest(word, at);
            if (match.length != 0)
            {
                symbols_.push_back({static_cast<std::uint32_t>(match.value), static_cast<std::uint32_t>(match.length)});
                at += match.length;
                continue;
            }
        }
        const Utf8Step step = utf8_step(word, at);
        const std::uint32_t symbol = model_.characters.find(step.code_point);
        if (symbol == Symbol::none && model_.byte_fallback && model_.bytes_merge)
        {
            for (std::uint32_t i = 0; i < step.bytes; ++i)
            {
                symbols_.push_back({model_.byte_ids[static_cast<unsigned char>(word[at + i])], 1});
            }
        }
        else { symbols_.push_back({symbol, step.bytes}); }
        at += step.bytes;
    }
}

void SubwordEncoder::compute_bpe(std::string_view word, Found& found)
{
    VALIDATE(word.size() < (std::size_t{1} << 31), FormatError,
             "a stretch of {} bytes has no place where it may be cut (at most 2 GiB are merged at once)", word.size());
    start_symbols(word);
    if (model_.kind == SubwordModel::Kind::bpe)
    {
        if (model_.unused.empty()) { merger_.merge(model_.merges, symbols_); }
        else
        {
            merger_.merge(model_.merges, symbols_,
                          [this](const Merge& merge, std::uint32_t left, std::uint32_t right)
                          {
                              if (model_.unused[merge.symbol]) { splits_[merge.symbol] = {left, right}; }
                          });
        }
    }
    std::size_t at = 0;
    for (const Symbol& symbol : symbols_)
    {
        const std::string_view text = word.substr(at, symbol.bytes);
        at += symbol.bytes;
        if (symbol.id == Symbol::none) { emit_unknown(text, found); }
        else { emit_symbol(symbol.id, text, found); }
    }
}

void SubwordEncoder::emit_symbol(std::uint32_t symbol, std::string_view text, Found& found)
{
    if (!model_.unused.empty() && model_.unused[symbol])
    {
        return splits_.count(symbol) != 0 ? emit_unused(symbol, text, found) : emit_unknown(text, found);
    }
    const std::uint32_t id = model_.ids[symbol];
    if (id == SubwordModel::no_id || id == model_.unknown_id) { return emit_unknown(text, found); }
    word_ids_.push_back(id);
    if (model_.bytes_merge && text.size() == 1 && model_.byte_ids[static_cast<unsigned char>(text[0])] == id)
    {
        ++found.bytes;
    }
}

void SubwordEncoder::emit_unused(std::uint32_t symbol, std::string_view text, Found& found)
{
    const Split split = splits_.at(symbol);
    const std::size_t left = model_.symbol_bytes[split.left];
    emit_symbol(split.left, text.substr(0, left), found);
    emit_symbol(split.right, text.substr(left), found);
}

void SubwordEncoder::emit_unknown(std::string_view text, Found& found)
{
    if (model_.byte_fallback)
    {
        for (const char byte : text) { word_ids_.push_back(model_.byte_ids[static_cast<unsigned char>(byte)]); }
        found.bytes += static_cast<std::uint32_t>(text.size());
        return;
    }
    if (model_.unknown_id == SubwordModel::no_id) { return; }
    if (model_.fuse_unknown && !word_ids_.empty() && word_ids_.back() == model_.unknown_id) { return; }
    word_ids_.push_back(model_.unknown_id);
    ++found.unknown;
}

double SubwordEncoder::compute_unigram(std::string_view word, Found& found)
{
    VALIDATE(word.size() < (std::size_t{1} << 31), FormatError,
             "a stretch of {} bytes has no place where it may be cut (at most 2 GiB are segmented at once)",
             word.size());
    double margin = 0;
    const bool short_word = word.size() <= WordCache::max_bytes && model_.can_cut;
    if (short_word) { margin = unigram_.segment_with_margin(model_.unigram, word, pieces_); }
    if (short_word && beats_rounding(margin, word.size()))
    {
        for (const UnigramPiece& piece : pieces_)
        {
            const bool known = piece.id != model_.unigram.unknown_id;
            const double score = known ? model_.unigram.scores[piece.id] : model_.unigram.unknown_score;
            float_sum_ = static_cast<float>(score + static_cast<double>(float_sum_));
            double_sum_ += score;
        }
    }
    else
    {
        exact_pieces_.swap(pieces_);
        if (model_.double_sums) { unigram_.segment(model_.unigram, word, double_sum_, pieces_); }
        else { unigram_.segment(model_.unigram, word, float_sum_, pieces_); }
        // What rounding has decided here is not for other places.
        if (pieces_ != exact_pieces_) { margin = 0; }
    }
    std::size_t at = 0;
    for (const UnigramPiece& piece : pieces_)
    {
        if (piece.id == model_.unigram.unknown_id) { emit_unknown(word.substr(at, piece.bytes), found); }
        else { word_ids_.push_back(piece.id); }
        at += piece.bytes;
    }
    return margin;
}

}  // namespace plimsoll
