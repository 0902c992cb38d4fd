#pragma once
/// Byte-level BPE: GPT-2 and all that came after it. Exact against HF `tokenizers` (tokenizer.json, without the post-processor) and
/// `tiktoken` (rank files); docs/tokenizers.md says what of the formats is known.

#include <memory>
#include <string>

#include "io/tokenizer/rank_file.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/tokenizer_json.hpp"

namespace plimsoll
{

/// Whether a tokenizer.json is one of these.
bool is_byte_bpe(const TokenizerJson& json);

/// @throws FormatError for what cannot be done exactly, ConfigError for options
std::unique_ptr<Tokenizer> make_byte_bpe(TokenizerJson json, const TokenizerOptions& options);

/// `pattern`: name of the split rules where the file name does not tell, else empty.
std::unique_ptr<Tokenizer> make_rank_bpe(const std::string& path, RankFile ranks, const std::string& pattern,
                                         const TokenizerOptions& options);

}  // namespace plimsoll
