#pragma once
/// Characters as the steps of Hugging Face's tokenizers see them, each by the Unicode version of the step. Any thread may call.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll
{

/// End of the extended grapheme cluster (UAX 29, Unicode 16) that starts at `at` (< text.size(), a cluster's start).
std::size_t next_grapheme(std::string_view text, std::size_t at);

/// Is removed by StripAccents.
bool is_hf_mark(std::uint32_t c);
/// Is punctuation for the pre_tokenizer Punctuation.
bool is_hf_punctuation(std::uint32_t c);
/// White_Space, for Strip and WhitespaceSplit.
bool is_hf_space(std::uint32_t c);
/// Appends the lower case of `c`.
void append_hf_lower(std::uint32_t c, std::string& out);

}  // namespace plimsoll
