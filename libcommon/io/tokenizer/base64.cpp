#include "io/tokenizer/base64.hpp"

#include <array>
#include <cstdint>

namespace plimsoll
{

namespace
{

std::array<std::int8_t, 256> base64_values()
{
    std::array<std::int8_t, 256> values{};
    values.fill(-1);
    const std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (std::size_t i = 0; i < digits.size(); ++i)
    {
        values[static_cast<unsigned char>(digits[i])] = static_cast<std::int8_t>(i);
    }
    return values;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text)
{
    static const std::array<std::int8_t, 256> values = base64_values();
    if (text.empty() || text.size() % 4 != 0) { return std::nullopt; }
    std::size_t pad = 0;
    while (pad < 2 && text[text.size() - 1 - pad] == '=') { ++pad; }
    std::string result;
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < text.size(); ++i)
    {
        const bool is_pad = i + pad >= text.size();
        const int value = is_pad ? 0 : values[static_cast<unsigned char>(text[i])];
        if (value < 0) { return std::nullopt; }
        bits = bits << 6 | static_cast<std::uint32_t>(value);
        if (i % 4 != 3) { continue; }
        result.push_back(static_cast<char>(bits >> 16 & 0xFF));
        result.push_back(static_cast<char>(bits >> 8 & 0xFF));
        result.push_back(static_cast<char>(bits & 0xFF));
    }
    result.resize(result.size() - pad);
    return result;
}

}  // namespace plimsoll
