#pragma once
/// datatrove's files, which nanotron reads: PREFIX.ds holds tokens without a header, PREFIX.ds.index where each document
/// ends, PREFIX.ds.metadata tokenizer and count, PREFIX.ds.loss a loss mask. Layout: docs/token_formats.md.

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

/// One .ds file with its neighbours. Thread-safe after construction.
class DatatroveReader
{
  public:
    /// Checks that index, metadata (where there is one), loss mask (where there is one) and size agree.
    /// @throws FormatError naming file and fault, IoError
    explicit DatatroveReader(const std::string& path);

    const std::string& path() const { return tokens_.path(); }
    Dtype dtype() const { return dtype_; }  ///< u16 or u32
    std::int64_t num_tokens() const { return num_tokens_; }
    std::int64_t num_documents() const { return num_documents_; }
    bool has_loss_mask() const { return loss_.has_value(); }
    std::int64_t file_bytes() const { return file_bytes_; }
    const std::string& tokenizer() const { return tokenizer_; }  ///< as the metadata names it; empty without one

    void read(std::int64_t begin, std::int64_t num, std::uint32_t* tokens) const;
    void read_loss_mask(std::int64_t begin, std::int64_t num, std::uint8_t* mask) const;
    /// Ends of documents [first, first + num), exclusive. @throws FormatError when they decrease
    void read_document_ends(std::int64_t first, std::int64_t num, std::uint64_t* ends) const;

  private:
    void read_metadata();

    File tokens_;
    File index_;
    std::optional<File> loss_;
    Dtype dtype_ = Dtype::u16;
    std::int64_t num_tokens_ = 0;
    std::int64_t num_documents_ = 0;
    std::int64_t file_bytes_ = 0;
    std::string tokenizer_;
};

class DatatroveDocuments : public DocumentReader
{
  public:
    explicit DatatroveDocuments(const std::vector<std::string>& paths);

    bool next(TokenDocument& document) override;
    bool has_loss_mask() const override { return has_loss_mask_; }
    std::int64_t total_bytes() const override { return total_bytes_; }
    std::int64_t bytes_read() const override { return bytes_read_; }

  private:
    std::vector<DatatroveReader> files_;
    bool has_loss_mask_ = false;
    std::int64_t total_bytes_ = 0;
    std::int64_t bytes_read_ = 0;
    std::size_t file_ = 0;
    std::int64_t document_ = 0;  ///< of the file
    std::int64_t token_ = 0;
    std::vector<std::uint64_t> ends_;  ///< of a window of documents
    std::int64_t window_begin_ = 0;
};

class DatatroveWriter : public DocumentWriter
{
  public:
    /// PREFIX.ds and its neighbours; `tokenizer` for the metadata.
    DatatroveWriter(const std::string& prefix, std::int64_t vocab, std::string tokenizer, bool with_loss_mask);

    void add(const TokenDocument& document) override;
    void finish() override;

  private:
    std::int64_t vocab_;
    std::int64_t width_;
    std::string tokenizer_;
    AppendFile tokens_;
    AppendFile index_;
    AppendFile metadata_;
    std::unique_ptr<AppendFile> loss_;
    std::uint64_t end_ = 0;
    std::int64_t num_documents_ = 0;
};

/// 4,090 tokens as "4.09 kT": three digits, as datatrove's metadata has it.
std::string datatrove_amount(std::int64_t tokens);

}  // namespace plimsoll
