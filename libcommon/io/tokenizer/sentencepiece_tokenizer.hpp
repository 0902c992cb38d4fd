#pragma once
/// Tokenizers out of sentencepiece `.model` files: the ids that sentencepiece's encode() gives, for all its kinds of models.
///
/// A document is one text: rules for the start and the end of a text (the space in front, spaces removed) apply to it once.
/// Where special tokens are matched in it (control pieces, SpecialInText::match), each stretch between them is such a text.

#include <memory>
#include <string>
#include <string_view>

#include "io/tokenizer/sentencepiece_model.hpp"
#include "io/tokenizer/subword_model.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace plimsoll
{

/// `name` for messages and Tokenizer::name(). @throws FormatError for a broken file, ConfigError without a token that ends
/// a document
std::unique_ptr<Tokenizer> make_sentencepiece_model(std::string_view bytes, const std::string& name,
                                                    const TokenizerOptions& options = {});

/// The file `path`.
std::unique_ptr<Tokenizer> read_sentencepiece_model(const std::string& path, const TokenizerOptions& options = {});

/// Symbols, merges, scores and cuts of a model, for encoding.
SubwordModel make_subword_model(const SentencepieceModel& model);

}  // namespace plimsoll
