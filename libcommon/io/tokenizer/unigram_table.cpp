#include "io/tokenizer/unigram_table.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "io/tokenizer/utf8_step.hpp"

namespace plimsoll
{

namespace
{

constexpr std::uint32_t unigram_unreached = UINT32_MAX;
/// sentencepiece 0.2.3 takes the sum of where it is off all that it has reached, once it is below this.
constexpr double unigram_lowest_sum = -100000;

}  // namespace

template<class Score, bool with_second>
void Unigram::run(const UnigramTable& table, std::string_view text, Score sum)
{
    constexpr double lowest = -std::numeric_limits<double>::infinity();
    const std::size_t size = text.size();
    nodes_.assign(size + 1, {lowest, lowest, unigram_unreached, 0});
    nodes_[0].best = static_cast<double>(sum);
    const auto offer = [this](std::size_t end, double exact, std::size_t start, std::uint32_t id)
    {
        Node& node = nodes_[end];
        const auto candidate = static_cast<double>(static_cast<Score>(exact));
        if (node.start == unigram_unreached || candidate > node.best)
        {
            if (with_second) { node.second = node.best; }
            node.best = candidate;
            node.start = static_cast<std::uint32_t>(start);
            node.id = id;
        }
        else if (with_second) { node.second = std::max(node.second, candidate); }
    };
    for (std::size_t start = 0; start < size;)
    {
        if (std::is_same_v<Score, float> && nodes_[start].best < unigram_lowest_sum) { rebase(start); }
        const double so_far = nodes_[start].best;
        const std::size_t one = utf8_step(text, start).bytes;
        bool known = false;
        std::uint32_t at = DoubleArray::root;
        for (std::size_t end = start; end < size;)
        {
            at = table.trie.step(at, static_cast<unsigned char>(text[end++]));
            if (at == DoubleArray::nowhere) { break; }
            const std::int32_t id = table.trie.value(at);
            if (id < 0) { continue; }
            offer(end, table.scores[static_cast<std::size_t>(id)] + so_far, start, static_cast<std::uint32_t>(id));
            known = known || end - start == one;
        }
        if (!known) { offer(start + one, table.unknown_score + so_far, start, table.unknown_id); }
        start += one;
    }
}

void Unigram::rebase(std::size_t start)
{
    const double shift = nodes_[start].best;
    for (std::size_t end = start; end < nodes_.size(); ++end)
    {
        if (nodes_[end].start == unigram_unreached && end != start) { continue; }
        nodes_[end].best = static_cast<double>(static_cast<float>(nodes_[end].best - shift));
    }
}

void Unigram::collect(std::size_t size, std::vector<UnigramPiece>& pieces) const
{
    pieces.clear();
    for (std::size_t end = size; end > 0; end = nodes_[end].start)
    {
        pieces.push_back({nodes_[end].id, static_cast<std::uint32_t>(end - nodes_[end].start)});
    }
    std::reverse(pieces.begin(), pieces.end());
}

template<class Score>
void Unigram::segment(const UnigramTable& table, std::string_view text, Score& sum, std::vector<UnigramPiece>& pieces)
{
    run<Score, false>(table, text, sum);
    sum = static_cast<Score>(nodes_[text.size()].best);
    collect(text.size(), pieces);
}

template void Unigram::segment(const UnigramTable&, std::string_view, float&, std::vector<UnigramPiece>&);
template void Unigram::segment(const UnigramTable&, std::string_view, double&, std::vector<UnigramPiece>&);

double Unigram::segment_with_margin(const UnigramTable& table, std::string_view text, std::vector<UnigramPiece>& pieces)
{
    run<double, true>(table, text, 0.0);
    collect(text.size(), pieces);
    double margin = std::numeric_limits<double>::infinity();
    for (std::size_t end = text.size(); end > 0; end = nodes_[end].start)
    {
        margin = std::min(margin, nodes_[end].best - nodes_[end].second);
    }
    return margin;
}

}  // namespace plimsoll
