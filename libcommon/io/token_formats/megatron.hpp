#pragma once
/// Megatron's pair of files: PREFIX.bin holds the tokens of all sequences one after the other, PREFIX.idx the lengths
/// and byte offsets of the sequences and which sequences are a document. Layout: docs/token_formats.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "io/file.hpp"
#include "io/token_formats/append_file.hpp"
#include "io/token_formats/token_documents.hpp"

namespace plimsoll
{

/// Random access to the tokens of a pair. Opening reads a few hundred bytes, whatever the size; memory is what a call
/// asks for. Thread-safe after construction.
class MegatronReader
{
  public:
    /// `path`: PREFIX, PREFIX.idx or PREFIX.bin. Checks the header, the sizes of both files and the outer entries of
    /// each table. @throws FormatError naming file and fault, IoError
    explicit MegatronReader(const std::string& path);

    const std::string& prefix() const { return prefix_; }
    Dtype dtype() const { return dtype_; }  ///< u8, u16, i32 or i64
    std::int64_t num_tokens() const { return num_tokens_; }
    std::int64_t num_sequences() const { return num_sequences_; }
    std::int64_t num_documents() const { return num_documents_; }
    bool has_modes() const { return has_modes_; }  ///< a multimodal pair; the modes are not read
    std::int64_t file_bytes() const { return index_bytes_ + bin_bytes_; }

    /// Tokens [begin, begin + num) of all, as int64. @throws FormatError for a negative one
    void read(std::int64_t begin, std::int64_t num, std::int64_t* tokens) const;
    /// Where documents [first, first + num) end, exclusive, in tokens. A document may be empty.
    /// @throws FormatError when they do not increase or do not fit the files
    void read_document_ends(std::int64_t first, std::int64_t num, std::uint64_t* ends) const;
    std::vector<std::uint64_t> document_ends() const;

    /// Reads all of the index: lengths that are not negative, offsets that are the running sum, documents that
    /// increase. @throws FormatError naming the first fault
    void verify_index() const;
    /// The index, and every token: not negative, below `vocab` where it is known (> 0). `on_bytes` is told how many
    /// bytes were checked since its last call.
    void verify(std::int64_t vocab = 0, const std::function<void(std::int64_t)>& on_bytes = {}) const;

  private:
    void read_header();
    void check_outer_entries() const;
    void verify_sequences() const;
    void verify_documents() const;
    std::int64_t lengths_offset() const;
    std::int64_t pointers_offset() const;
    std::int64_t documents_offset() const;

    std::string prefix_;
    File index_;
    File bin_;
    Dtype dtype_ = Dtype::u16;
    std::int64_t index_bytes_ = 0;
    std::int64_t bin_bytes_ = 0;
    std::int64_t num_sequences_ = 0;
    std::int64_t num_documents_ = 0;
    std::int64_t num_tokens_ = 0;
    bool has_modes_ = false;
};

/// The documents of a pair one after the other; the whole index is verified first.
class MegatronDocuments : public DocumentReader
{
  public:
    explicit MegatronDocuments(const std::string& path);

    const MegatronReader& reader() const { return reader_; }
    bool next(TokenDocument& document) override;
    bool has_loss_mask() const override { return false; }
    std::int64_t total_bytes() const override;
    std::int64_t bytes_read() const override;

  private:
    MegatronReader reader_;
    std::vector<std::uint64_t> ends_;  ///< of a window of documents
    std::int64_t window_begin_ = 0;
    std::int64_t document_ = 0;
    std::int64_t token_ = 0;
    std::vector<std::int64_t> wide_;
};

/// Tokens are u16 for a vocabulary up to 65,536, else i32 (the format has no u32). A document is one sequence; one of
/// more than 2^31 - 1 tokens is several, an empty one none. A loss mask is not kept.
class MegatronWriter : public DocumentWriter
{
  public:
    /// Writes PREFIX.bin and PREFIX.idx. `max_sequence_tokens` is the format's limit, smaller in tests.
    /// @throws ConfigError for a vocabulary above 2^31, IoError
    MegatronWriter(const std::string& prefix, std::int64_t vocab, std::int64_t max_sequence_tokens = 2147483647);

    void add(const TokenDocument& document) override;
    void finish() override;

  private:
    std::int64_t vocab_;
    std::int64_t width_;
    std::int64_t max_sequence_tokens_;
    AppendFile bin_;
    AppendFile index_;
    AppendFile lengths_;
    AppendFile documents_;  ///< sequences before the end of each
    std::int64_t num_sequences_ = 0;
    std::int64_t num_documents_ = 0;
};

}  // namespace plimsoll
