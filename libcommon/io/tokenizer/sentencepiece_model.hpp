#pragma once
/// What a sentencepiece `.model` file says (sentencepiece_model.proto), read without a protobuf library.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/charsmap.hpp"

namespace plimsoll
{

struct SentencePiece
{
    enum class Type : std::uint8_t
    {
        normal = 1,
        unknown = 2,
        control = 3,
        user_defined = 4,
        unused = 5,
        byte = 6,
    };
    std::string text;
    float score = 0;
    Type type = Type::normal;

    /// Found in text; the other types live beside the vocabulary.
    bool matches_text() const { return type == Type::normal || type == Type::user_defined || type == Type::unused; }
};

struct SentencepieceRules
{
    Charsmap charsmap;
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;
    bool escape_whitespaces = true;
    bool whitespace_as_suffix = false;
};

struct SentencepieceModel
{
    enum class Kind
    {
        unigram = 1,
        bpe = 2,
        word = 3,
        character = 4,
    };
    Kind kind = Kind::unigram;
    std::vector<SentencePiece> pieces;  ///< a piece's index is its id
    std::uint32_t unknown_id = 0;
    bool byte_fallback = false;
    std::uint32_t byte_ids[256] = {};  ///< with byte_fallback
    std::string eos_piece = "</s>";
    std::string unknown_surface = " \xE2\x81\x87 ";  ///< what the unknown token decodes to
    SentencepieceRules rules;
    bool has_denormalizer = false;
    SentencepieceRules denormalizer;
};

/// Reads and checks the bytes of a file. Any bytes end in a model that can be used or in FormatError "name: reason".
SentencepieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& name);

}  // namespace plimsoll
