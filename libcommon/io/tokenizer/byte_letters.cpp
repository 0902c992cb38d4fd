#include "io/tokenizer/byte_letters.hpp"

#include <array>

namespace plimsoll
{

namespace
{

struct ByteLetters
{
    std::array<std::uint32_t, 256> letters{};
    std::array<std::int16_t, 0x200> bytes{};

    ByteLetters()
    {
        bytes.fill(-1);
        std::uint32_t next = 0x100;
        for (std::uint32_t byte = 0; byte < 256; ++byte)
        {
            const bool is_own = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
            letters[byte] = is_own ? byte : next++;
            bytes[letters[byte]] = static_cast<std::int16_t>(byte);
        }
    }
};

const ByteLetters& byte_letters()
{
    static const ByteLetters table;
    return table;
}

}  // namespace

std::uint32_t letter_of_byte(std::uint8_t byte) { return byte_letters().letters[byte]; }

int byte_of_letter(std::uint32_t code_point)
{
    return code_point < byte_letters().bytes.size() ? byte_letters().bytes[code_point] : -1;
}

}  // namespace plimsoll
