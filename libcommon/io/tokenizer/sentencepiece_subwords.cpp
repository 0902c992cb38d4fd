// The tables of a sentencepiece model for encoding.

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "base/error.hpp"
#include "io/tokenizer/sentencepiece_tokenizer.hpp"

namespace plimsoll
{

namespace
{

using PieceType = SentencePiece::Type;
using TextSymbols = std::unordered_map<std::string_view, std::uint32_t>;

/// Calls visit(offset, character) for the characters of a piece.
template<class Visit>
void for_each_character(std::string_view text, Visit&& visit)
{
    for (std::size_t at = 0; at < text.size();)
    {
        const Utf8Step step = utf8_step(text, at);
        visit(at, step);
        at += step.bytes;
    }
}

/// Symbols of all pieces that stand in text and of the characters in them.
TextSymbols add_symbols(const SentencepieceModel& model, SubwordModel& subwords)
{
    TextSymbols symbols;
    for (std::uint32_t id = 0; id < model.pieces.size(); ++id)
    {
        if (!model.pieces[id].matches_text()) { continue; }
        symbols[model.pieces[id].text] = static_cast<std::uint32_t>(subwords.ids.size());
        subwords.ids.push_back(id);
    }
    for (const SentencePiece& piece : model.pieces)
    {
        if (!piece.matches_text()) { continue; }
        for_each_character(piece.text,
                           [&](std::size_t at, const Utf8Step& step)
                           {
                               const auto next = static_cast<std::uint32_t>(subwords.ids.size());
                               const auto added =
                                   symbols.emplace(std::string_view(piece.text).substr(at, step.bytes), next);
                               if (added.second) { subwords.ids.push_back(SubwordModel::no_id); }
                               subwords.characters.set(step.code_point, added.first->second);
                           });
    }
    return symbols;
}

/// Higher scores merge first, equal ones have equal ranks.
std::vector<float> sorted_scores(const SentencepieceModel& model)
{
    std::vector<float> scores;
    for (const SentencePiece& piece : model.pieces)
    {
        if (piece.matches_text()) { scores.push_back(piece.score); }
    }
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    return scores;
}

struct SymbolMerge
{
    std::uint32_t left, right;
    Merge merge;
};

/// sentencepiece looks up the text of two neighbours together, so every cut of a piece in two symbols is a merge.
std::vector<SymbolMerge> list_merges(const SentencepieceModel& model, const SubwordModel& subwords,
                                     const TextSymbols& symbols)
{
    const std::vector<float> scores = sorted_scores(model);
    std::vector<SymbolMerge> merges;
    const auto is_frozen = [&](std::uint32_t symbol)
    {
        const std::uint32_t id = subwords.ids[symbol];
        return id != SubwordModel::no_id && model.pieces[id].type == PieceType::user_defined;
    };
    for (const SentencePiece& piece : model.pieces)
    {
        if (!piece.matches_text() || piece.type == PieceType::user_defined) { continue; }
        const std::string_view text = piece.text;
        const auto rank = static_cast<std::uint32_t>(
            std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) - scores.begin());
        const std::uint32_t whole = symbols.at(text);
        for_each_character(text,
                           [&](std::size_t at, const Utf8Step&)
                           {
                               if (at == 0) { return; }
                               const auto left = symbols.find(text.substr(0, at));
                               const auto right = symbols.find(text.substr(at));
                               if (left == symbols.end() || right == symbols.end()) { return; }
                               if (is_frozen(left->second) || is_frozen(right->second)) { return; }
                               merges.push_back({left->second, right->second, {whole, rank}});
                           });
    }
    return merges;
}

/// An unused piece falls back into the two that sentencepiece saw last, anywhere in the text, when it could have merged
/// them, and is unknown where it was not merged. With one pair only that is a property of the piece; else the text cannot be cut.
void add_unused(const SentencepieceModel& model, const std::vector<SymbolMerge>& merges, const TextSymbols& symbols,
                SubwordModel& subwords)
{
    subwords.unused.resize(subwords.ids.size());
    subwords.symbol_bytes.resize(subwords.ids.size());
    for (const auto& [text, symbol] : symbols)
    {
        const std::uint32_t id = subwords.ids[symbol];
        subwords.unused[symbol] = id != SubwordModel::no_id && model.pieces[id].type == PieceType::unused;
        subwords.symbol_bytes[symbol] = static_cast<std::uint32_t>(text.size());
    }
    std::vector<std::uint32_t> num_pairs(subwords.ids.size());
    for (const SymbolMerge& merge : merges)
    {
        if (++num_pairs[merge.merge.symbol] > 1 && subwords.unused[merge.merge.symbol]) { subwords.can_cut = false; }
    }
}

void add_merges(const SentencepieceModel& model, SubwordModel& subwords)
{
    const TextSymbols symbols = add_symbols(model, subwords);
    std::vector<SymbolMerge> merges;
    if (model.kind == SentencepieceModel::Kind::bpe) { merges = list_merges(model, subwords, symbols); }
    subwords.merges = MergeTable(merges.size());
    for (const SymbolMerge& merge : merges) { subwords.merges.add(merge.left, merge.right, merge.merge); }
    const bool any_unused = std::any_of(model.pieces.begin(), model.pieces.end(),
                                        [](const auto& piece) { return piece.type == PieceType::unused; });
    if (any_unused) { add_unused(model, merges, symbols, subwords); }
    std::vector<std::pair<std::string_view, std::int32_t>> frozen;
    for (const SentencePiece& piece : model.pieces)
    {
        if (piece.type != PieceType::user_defined) { continue; }
        frozen.emplace_back(piece.text, static_cast<std::int32_t>(symbols.at(piece.text)));
    }
    subwords.frozen = DoubleArray(std::move(frozen));
}

void add_scores(const SentencepieceModel& model, SubwordModel& subwords)
{
    float lowest = FLT_MAX;
    for (const SentencePiece& piece : model.pieces)
    {
        if (piece.type == PieceType::normal) { lowest = std::min(lowest, piece.score); }
    }
    UnigramTable& table = subwords.unigram;
    table.unknown_id = model.unknown_id;
    table.unknown_score = static_cast<double>(lowest - 10.0F);
    table.largest_score = std::abs(table.unknown_score);
    table.scores.resize(model.pieces.size());
    std::vector<std::pair<std::string_view, std::int32_t>> keys;
    for (std::uint32_t id = 0; id < model.pieces.size(); ++id)
    {
        const SentencePiece& piece = model.pieces[id];
        if (!piece.matches_text() || piece.type == PieceType::unused) { continue; }
        // What is defined by the user gets a bonus so that it wins, in the arithmetic of sentencepiece 0.2.3.
        table.scores[id] = piece.type == PieceType::user_defined
                               ? static_cast<double>(static_cast<float>(piece.text.size()) * 0.1F - 0.1F)
                               : static_cast<double>(piece.score);
        table.largest_score = std::max(table.largest_score, std::abs(table.scores[id]));
        keys.emplace_back(piece.text, static_cast<std::int32_t>(id));
    }
    VALIDATE(!keys.empty(), FormatError, "no piece of the vocabulary is used");
    table.trie = DoubleArray(std::move(keys));
}

}  // namespace

SubwordModel make_subword_model(const SentencepieceModel& model)
{
    using Kind = SentencepieceModel::Kind;
    SubwordModel subwords;
    subwords.kind = model.kind == Kind::unigram ? SubwordModel::Kind::unigram
                    : model.kind == Kind::bpe   ? SubwordModel::Kind::bpe
                    : model.kind == Kind::word  ? SubwordModel::Kind::word
                                                : SubwordModel::Kind::character;
    subwords.unknown_id = model.unknown_id;
    subwords.byte_fallback = model.byte_fallback;
    std::copy(std::begin(model.byte_ids), std::end(model.byte_ids), subwords.byte_ids.begin());
    std::vector<std::string_view> texts;
    for (std::uint32_t id = 0; id < model.pieces.size(); ++id)
    {
        const SentencePiece& piece = model.pieces[id];
        if (!piece.matches_text()) { continue; }
        texts.push_back(piece.text);
        if (model.kind == Kind::word && piece.type != PieceType::unused) { subwords.words[piece.text] = id; }
    }
    subwords.cuts = CutPairs(texts);
    if (model.kind == Kind::unigram) { add_scores(model, subwords); }
    else if (model.kind != Kind::word) { add_merges(model, subwords); }
    return subwords;
}

}  // namespace plimsoll
