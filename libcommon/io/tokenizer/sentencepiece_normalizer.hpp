#pragma once
/// From a document to the text that sentencepiece cuts into pieces.

#include <array>
#include <string>
#include <string_view>

#include "io/tokenizer/double_array.hpp"
#include "io/tokenizer/sentencepiece_model.hpp"

namespace plimsoll
{

/// Immutable; any thread may call.
class SentencepieceNormalizer
{
  public:
    /// `user_defined`: pieces that no rule changes; may be empty. Both outlive the normalizer.
    SentencepieceNormalizer(const SentencepieceRules& rules, const DoubleArray& user_defined);

    /// Replaces `out`. Spaces become U+2581, where the rules say so; each ill-formed byte becomes U+FFFD.
    void normalize(std::string_view text, std::string& out) const;

  private:
    struct Prefix
    {
        std::size_t consumed = 0;
        std::string_view text;
    };
    Prefix prefix(std::string_view text, std::size_t position) const;
    std::size_t skip_leading_spaces(std::string_view text) const;
    void append_escaped(std::string_view text, std::string& out) const;
    void remove_trailing_spaces(std::string& out) const;

    const SentencepieceRules& rules_;
    const DoubleArray& user_defined_;
    std::string_view space_;
    std::array<bool, 256> plain_{};  ///< stays itself, if a byte below 0x80 or the end of the text follows
    bool plain_space_ = false;       ///< the same of the space
};

}  // namespace plimsoll
