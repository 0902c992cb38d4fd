#pragma once
/// llm.c's token files: a header of 256 numbers, then u16 tokens (version 1) or u32 tokens (version 7). Documents are
/// told apart by the end-of-document id alone, which stands before each of them. Layout: docs/token_formats.md.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "io/file.hpp"
#include "io/token_formats/append_file.hpp"
#include "io/token_formats/token_documents.hpp"

namespace plimsoll
{

/// One file. Thread-safe after construction.
class LlmcReader
{
  public:
    /// Checks the header and that the size is the count's. @throws FormatError naming file and fault, IoError
    explicit LlmcReader(const std::string& path);

    const std::string& path() const { return file_.path(); }
    Dtype dtype() const { return dtype_; }  ///< u16 or u32
    std::int64_t num_tokens() const { return num_tokens_; }
    std::int64_t file_bytes() const { return file_bytes_; }
    /// Tokens [begin, begin + num).
    void read(std::int64_t begin, std::int64_t num, std::uint32_t* tokens) const;

  private:
    File file_;
    Dtype dtype_ = Dtype::u16;
    std::int64_t num_tokens_ = 0;
    std::int64_t file_bytes_ = 0;
};

/// The documents of several files that follow each other; one may begin in a file and end in the next.
class LlmcDocuments : public DocumentReader
{
  public:
    /// `max_document_tokens`: more than this without an end is an error, since the files do not say what their end is.
    LlmcDocuments(const std::vector<std::string>& paths, std::uint32_t eod,
                  std::int64_t max_document_tokens = 1ll << 28);

    /// Ids of a document with `eod` at its end.
    bool next(TokenDocument& document) override;
    bool has_loss_mask() const override { return false; }
    std::int64_t total_bytes() const override { return total_bytes_; }
    std::int64_t bytes_read() const override { return bytes_read_; }

  private:
    bool refill();

    std::vector<LlmcReader> files_;
    std::uint32_t eod_;
    std::int64_t max_document_tokens_;
    std::int64_t total_bytes_ = 0;
    std::int64_t bytes_read_ = 0;
    std::size_t file_ = 0;
    std::int64_t token_ = 0;             ///< of the file
    std::vector<std::uint32_t> window_;  ///< tokens not yet given out: from window_begin_ on
    std::size_t window_begin_ = 0;
    bool inside_ = false;  ///< an end-of-document id opened a document
};

/// PREFIX_000000.bin and so on, each but the last of exactly `file_tokens` tokens. A document's end-of-document id is
/// written before it instead of behind it.
class LlmcWriter : public DocumentWriter
{
  public:
    static constexpr std::int64_t max_file_tokens = 2147483647;

    /// @pre 0 < file_tokens <= max_file_tokens
    LlmcWriter(std::string prefix, std::int64_t vocab, std::uint32_t eod, std::int64_t file_tokens);

    /// @throws FormatError for a document without `eod` at its end
    void add(const TokenDocument& document) override;
    void finish() override;
    /// Documents with `eod` inside: a reader will find two.
    std::int64_t num_ambiguous() const { return num_ambiguous_; }

  private:
    void append(const std::uint32_t* ids, std::int64_t num);
    void start_file();
    void seal_file();

    std::string prefix_;
    std::int64_t vocab_;
    std::uint32_t eod_;
    std::int64_t width_;
    std::int64_t file_tokens_;
    std::int64_t in_file_ = 0;
    std::int64_t num_documents_ = 0;
    std::int64_t num_ambiguous_ = 0;
    std::vector<std::unique_ptr<AppendFile>> files_;
};

}  // namespace plimsoll
