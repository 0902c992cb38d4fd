#pragma once
/// A document as tokens, whatever it is made of: the one place where text, parts and ready ids become ids and a loss mask.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "io/text_input.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace plimsoll
{

/// Tokens of documents, one after the other.
struct EncodedDocuments
{
    struct Entry
    {
        std::int64_t end = 0;         ///< in `ids`, exclusive
        std::int64_t text_bytes = 0;  ///< UTF-8 bytes of the text
        std::uint64_t hash = 0;       ///< content_hash() of the document
    };
    std::vector<std::uint32_t> ids;  ///< each document with its end-of-document token
    std::vector<std::uint8_t> mask;  ///< as long as `ids` where masks are wanted, else empty
    std::vector<Entry> entries;

    void clear();
};

enum class LossMask
{
    none,   ///< every token counts
    wanted  ///< 1 where the token counts as a label
};

enum class EncodedAs
{
    document,
    empty,      ///< no text at all: nothing appended
    unlabelled  ///< no token counts in the loss: nothing appended
};

/// XXH3 of what the document says, keyed choices (validation, split) follow it. Of a text, of its bytes alone; of parts also
/// of their kinds; of ids, of their bytes.
std::uint64_t content_hash(const Document& document);

/// Of one thread.
class DocumentEncoder
{
  public:
    DocumentEncoder(const Tokenizer& tokenizer, LossMask loss_mask);

    /// Appends the document. Text: all tokens and the end of the document count. Parts: neighbouring texts as
    /// one through the tokenizer (encode_joined()), specials as their one id, each counting or not as its part says; the end counts as the last part does. Ids: as they
    /// are with their mask; the end is added where it is not there and counts as the last id does.
    /// @throws FormatError for a special token that the tokenizer has not, an id outside the vocabulary, a mask of another
    /// length, and what the tokenizer throws: a bad record. Nothing is appended then.
    EncodedAs encode(const Document& document, EncodedDocuments& out);
    const EncodeCounts& counts() const { return encoder_->counts(); }

  private:
    EncodedAs append(const Document& document, EncodedDocuments& out, EncodedDocuments::Entry& entry);
    void append_text(std::string_view text, std::uint8_t counts, EncodedDocuments& out);
    void append_parts(const std::vector<DocumentPart>& parts, EncodedDocuments& out);
    void append_special(std::string_view content, std::uint8_t counts, EncodedDocuments& out) const;
    void append_ids(const Document& document, EncodedDocuments& out) const;
    void append_end(EncodedDocuments& out) const;
    std::int64_t text_bytes_of(const Document& document) const;

    const Tokenizer& tokenizer_;
    bool with_mask_;
    std::unique_ptr<TokenEncoder> encoder_;
};

}  // namespace plimsoll
