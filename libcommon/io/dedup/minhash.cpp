#include "io/dedup/minhash.hpp"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "io/tokenizer/unicode.hpp"

namespace plimsoll
{

namespace
{

DedupKey key_of(const void* data, std::size_t bytes, std::uint64_t seed)
{
    const XXH128_hash_t hash = XXH3_128bits_withSeed(data, bytes, seed);
    return {hash.high64, hash.low64};
}

}  // namespace

Minhash::Minhash(const MinhashParameters& parameters) : parameters_(parameters)
{
    EXPECT(parameters.ngram > 0 && parameters.bands > 0 && parameters.rows > 0);
    const int num = parameters.bands * parameters.rows;
    for (int i = 0; i < num; ++i)
    {
        const auto index = static_cast<std::uint64_t>(i);
        // Odd, so that multiplying is a permutation.
        multipliers_.push_back(hash_numbers({parameters.seed, index, 0}) | 1);
        offsets_.push_back(hash_numbers({parameters.seed, index, 1}));
    }
}

void Minhash::ngrams(const std::vector<std::uint64_t>& units, std::vector<std::uint64_t>& hashes) const
{
    hashes.clear();
    if (units.empty()) { return; }
    const std::size_t n = std::min(units.size(), static_cast<std::size_t>(parameters_.ngram));
    for (std::size_t i = 0; i + n <= units.size(); ++i)
    {
        hashes.push_back(XXH3_64bits(units.data() + i, n * sizeof(std::uint64_t)));
    }
}

std::vector<std::uint32_t> Minhash::signature(const std::vector<std::uint64_t>& hashes) const
{
    EXPECT(!hashes.empty());
    const std::size_t num = multipliers_.size();
    std::vector<std::uint32_t> minima(num, 0xffffffffu);
    for (const std::uint64_t hash : hashes)
    {
        for (std::size_t i = 0; i < num; ++i)
        {
            const auto value = static_cast<std::uint32_t>((hash * multipliers_[i] + offsets_[i]) >> 32);
            minima[i] = std::min(minima[i], value);
        }
    }
    return minima;
}

std::vector<DedupKey> Minhash::keys(const std::vector<std::uint32_t>& signature) const
{
    EXPECT(signature.size() == multipliers_.size());
    const auto rows = static_cast<std::size_t>(parameters_.rows);
    std::vector<DedupKey> keys;
    for (std::size_t band = 0; band < static_cast<std::size_t>(parameters_.bands); ++band)
    {
        // The band is in the key: equal minima in different bands mean nothing.
        keys.push_back(key_of(signature.data() + band * rows, rows * sizeof(std::uint32_t), band));
    }
    return keys;
}

double Minhash::similarity(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b)
{
    EXPECT(a.size() == b.size() && !a.empty());
    std::int64_t equal = 0;
    for (std::size_t i = 0; i < a.size(); ++i) { equal += a[i] == b[i] ? 1 : 0; }
    return static_cast<double>(equal) / static_cast<double>(a.size());
}

void append_word_hashes(std::string_view text, std::vector<std::uint64_t>& hashes)
{
    constexpr ClassSet word = letter_set | mark_set | number_set;
    const UnicodeTables& tables = UnicodeTables::get();
    const char* const end = text.data() + text.size();
    const char* begin = nullptr;
    for (const char* at = text.data(); at < end;)
    {
        const CodePoint point = decode_utf8(at);
        const bool inside = (one_class(tables.char_class(point.value)) & word) != 0;
        if (inside && begin == nullptr) { begin = at; }
        if (!inside && begin != nullptr)
        {
            hashes.push_back(XXH3_64bits(begin, static_cast<std::size_t>(at - begin)));
            begin = nullptr;
        }
        at += point.bytes;
    }
    if (begin != nullptr) { hashes.push_back(XXH3_64bits(begin, static_cast<std::size_t>(end - begin))); }
}

void append_token_hashes(const std::vector<std::uint32_t>& ids, std::vector<std::uint64_t>& hashes)
{
    for (const std::uint32_t id : ids) { hashes.push_back(mix64(id + 1)); }
}

DedupKey exact_key(const std::vector<std::uint32_t>& ids) { return key_of(ids.data(), ids.size() * 4, 0); }

}  // namespace plimsoll
