#pragma once
/// Hugging Face conversions of sentencepiece models: a tokenizer.json whose text is normalised to U+2581 for spaces and whose model
/// is BPE or Unigram over characters (Llama-2, Gemma, T5, XLM-R). Ids are those of `tokenizers` without its post-processor.

#include <memory>

#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/tokenizer_json.hpp"

namespace plimsoll
{

/// @throws FormatError "path: normalizer X is not supported" for a step that is not built, ConfigError without a token that
/// ends a document
std::unique_ptr<Tokenizer> make_sentencepiece_like(const TokenizerJson& json, const TokenizerOptions& options = {});

}  // namespace plimsoll
