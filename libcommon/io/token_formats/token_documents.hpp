#pragma once
/// Tokenised documents on their way from one format to another: what every reader gives and every writer takes.

#include <cstdint>
#include <vector>

namespace plimsoll
{

struct TokenDocument
{
    std::vector<std::uint32_t> ids;
    std::vector<std::uint8_t> mask;  ///< 1 where the token counts in the loss; empty: every token does
    std::int64_t text_bytes = -1;    ///< UTF-8 bytes of its text; -1: not known
};

/// Documents in their order. Memory: the longest document and a constant. One thread.
class DocumentReader
{
  public:
    virtual ~DocumentReader() = default;
    /// The next document, empty ones included; false after the last. @throws FormatError, IoError
    virtual bool next(TokenDocument& document) = 0;
    virtual bool has_loss_mask() const = 0;
    /// Bytes of token data: all, and those that were read so far.
    virtual std::int64_t total_bytes() const = 0;
    virtual std::int64_t bytes_read() const = 0;
};

/// Takes documents; nothing is visible before finish(), and nothing stays without it. Every id is checked against the
/// vocabulary. Memory: a constant. One thread.
class DocumentWriter
{
  public:
    virtual ~DocumentWriter() = default;
    /// @throws FormatError for an id that is not below the vocabulary, IoError
    virtual void add(const TokenDocument& document) = 0;
    /// Once, after the last document. @throws IoError
    virtual void finish() = 0;
};

/// @throws FormatError naming id, position, document and vocabulary
void check_ids(const std::vector<std::uint32_t>& ids, std::int64_t vocab, std::int64_t document);

}  // namespace plimsoll
