#pragma once
/// The characters that stand for bytes in the tokens of a byte-level tokenizer.json, as GPT-2 chose them: 0x21-7E, A1-AC and AE-FF for
/// themselves, the other bytes in their order as U+0100 and up.

#include <cstdint>

namespace plimsoll
{

/// Code point, below 0x200.
std::uint32_t letter_of_byte(std::uint8_t byte);

/// -1 for a code point that stands for no byte.
int byte_of_letter(std::uint32_t code_point);

}  // namespace plimsoll
