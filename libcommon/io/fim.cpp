#include "io/fim.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/rng.hpp"

namespace plimsoll
{

namespace
{

/// Part of the order; other streams: sample_order.cpp.
constexpr auto purpose_fim = static_cast<RngPurpose>(12);

std::int64_t cut_of(const CounterRng& rng, std::uint64_t index, std::int64_t size)
{
    return static_cast<std::int64_t>(
        (static_cast<unsigned __int128>(rng.bits(index)) * static_cast<std::uint64_t>(size + 1)) >> 64);
}

}  // namespace

void fill_in_the_middle(const Fim& fim, const FimPiece& piece, std::int64_t* tokens, std::int64_t num)
{
    constexpr std::int64_t num_marks = 3;
    const std::int64_t kept = num - num_marks;
    if (fim.rate <= 0 || kept < 1) { return; }
    const auto document = static_cast<std::uint64_t>(piece.document);
    const auto epoch = static_cast<std::uint64_t>(piece.epoch);
    const CounterRng of_document(piece.seed, purpose_fim, hash_numbers({document, epoch}));
    if (of_document.uniform(0) >= fim.rate) { return; }
    const CounterRng of_piece(piece.seed, purpose_fim,
                              hash_numbers({document, epoch, static_cast<std::uint64_t>(piece.sample)}));
    std::int64_t first = cut_of(of_piece, 0, kept), second = cut_of(of_piece, 1, kept);
    if (first > second) { std::swap(first, second); }
    std::vector<std::int64_t> out;
    out.reserve(static_cast<std::size_t>(num));
    const auto put = [&](std::int64_t begin, std::int64_t end) { out.insert(out.end(), tokens + begin, tokens + end); };
    out.push_back(fim.prefix);
    if (of_document.uniform(1) < fim.spm_rate)
    {
        out.push_back(fim.suffix);
        put(second, kept);
        out.push_back(fim.middle);
        put(0, first);
    }
    else
    {
        put(0, first);
        out.push_back(fim.suffix);
        put(second, kept);
        out.push_back(fim.middle);
    }
    put(first, second);
    std::copy(out.begin(), out.end(), tokens);
}

}  // namespace plimsoll
