#include "io/tokenizer/unicode.hpp"

#include <map>

#include "io/tokenizer/unicode_data.hpp"

namespace plimsoll
{

const UnicodeTables& UnicodeTables::get()
{
    static const UnicodeTables tables;
    return tables;
}

UnicodeTables::UnicodeTables()
{
    constexpr std::size_t block = 128;
    std::map<std::array<std::uint8_t, block>, std::uint16_t> known;
    std::size_t range = 0;
    for (std::size_t i = 0; i < index_.size(); ++i)
    {
        std::array<std::uint8_t, block> values{};
        for (std::size_t j = 0; j < block; ++j)
        {
            const std::size_t c = i * block + j;
            while (range + 1 < unicode_data::properties_size && unicode_data::properties[range + 1] >> 8 <= c)
            {
                ++range;
            }
            values[j] = static_cast<std::uint8_t>(unicode_data::properties[range] & 0xFF);
        }
        const auto [place, is_new] = known.emplace(values, static_cast<std::uint16_t>(known.size()));
        if (is_new) { blocks_.insert(blocks_.end(), values.begin(), values.end()); }
        index_[i] = place->second;
    }
}

std::string_view unicode_version() { return unicode_data::version; }

}  // namespace plimsoll
