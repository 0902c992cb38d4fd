#pragma once
/// Token shards: HDF5 files of tokens with document offsets (docs/token_shards.md), and the set of them that a run
/// reads.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"

namespace plimsoll
{

/// What a shard says of itself; the same in its manifest row.
struct TokenShardInfo
{
    std::string path;
    Dtype dtype = Dtype::u16;  ///< u16 iff vocab <= 65,536, else u32
    std::int64_t num_tokens = 0;
    std::int64_t num_documents = 0;
    std::int64_t text_bytes = 0;   ///< UTF-8 bytes of the documents, for bits per byte
    std::int64_t vocab = 0;        ///< ids are below this
    std::string tokenizer;         ///< name
    std::string fingerprint;       ///< sha256 of the tokenizer's definition
    std::uint32_t tokens_crc = 0;  ///< CRC32C of all tokens
    bool has_loss_mask = false;
    std::uint32_t loss_mask_crc = 0;  ///< CRC32C of the whole mask; 0 without one
    std::int64_t file_bytes = 0;
    /// CRC32C of all bytes of the file outside its data: of a written shard or its manifest row, none where older ones lack it.
    std::optional<std::uint32_t> skeleton_crc;
};

/// How far a shard that is being written has come: what is in its files, and their CRC32C.
struct TokenShardProgress
{
    std::int64_t num_tokens = 0;
    std::int64_t num_documents = 0;
    std::int64_t text_bytes = 0;
    std::uint32_t tokens_crc = 0;
    std::uint32_t ends_crc = 0;
    std::uint32_t text_bytes_crc = 0;
    std::uint32_t loss_mask_crc = 0;
};

/// The files that documents pass through on their way into a shard.
enum class SpillFiles
{
    unnamed,  ///< gone with the process
    kept,     ///< x.h5.tokens.tmp ...: a later process can go on
};

/// Writes one shard: tmp, fsync, rename at finish(). Memory: one block of 64 KiB per dataset; documents pass through
/// unnamed temporary files beside `path`, since a contiguous dataset must be created with its final size. One thread.
class TokenShardWriter
{
  public:
    /// @throws IoError
    TokenShardWriter(std::string path, std::int64_t vocab, std::string tokenizer, std::string fingerprint,
                     bool with_loss_mask = false, SpillFiles spill = SpillFiles::unnamed);
    /// Goes on where another process was when persist() returned `from`.
    /// @throws FormatError when the files do not hold it
    TokenShardWriter(std::string path, std::int64_t vocab, std::string tokenizer, std::string fingerprint,
                     bool with_loss_mask, const TokenShardProgress& from);
    ~TokenShardWriter();
    TokenShardWriter(const TokenShardWriter&) = delete;
    TokenShardWriter& operator=(const TokenShardWriter&) = delete;

    /// One document with its end-of-document token; `loss_mask` (0/1 per token) only when the shard has one.
    /// @throws FormatError for an id that is not below the vocabulary, IoError
    void add_document(const std::uint32_t* tokens, std::int64_t num_tokens, std::int64_t text_bytes,
                      const std::uint8_t* loss_mask = nullptr);
    std::int64_t num_tokens() const;
    std::int64_t num_documents() const;
    enum class Durable
    {
        no,  ///< survives the process
        yes  ///< survives the machine
    };
    /// Brings all documents so far into the files. @pre SpillFiles::kept
    TokenShardProgress persist(Durable durable);
    /// Removes the kept files of a shard of this path.
    static void remove_spill_files(const std::string& path);
    /// Makes the file visible; once, after the last document. A writer destroyed without finish() leaves nothing.
    /// @pre at least one document @throws IoError
    TokenShardInfo finish();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// Stored tokens, read by ranges. Thread-safe after construction.
class TokenFile
{
  public:
    virtual ~TokenFile() = default;
    virtual const TokenShardInfo& info() const = 0;
    /// tokens [begin, begin + num) as int64. @throws FormatError for damaged data, naming the file
    virtual void read(std::int64_t begin, std::int64_t num, std::int64_t* tokens) const = 0;
    /// loss mask of the same range, all 1 when the file has none.
    virtual void read_loss_mask(std::int64_t begin, std::int64_t num, std::uint8_t* mask) const = 0;
    /// Where documents [first, first + num) end, exclusive, in tokens.
    virtual void read_document_ends(std::int64_t first, std::int64_t num, std::uint64_t* ends) const = 0;
};

/// The part of a document that lies in a range of tokens.
struct DocumentPiece
{
    std::int64_t document = 0;  ///< number in the file, or in the source
    std::int64_t begin = 0, end = 0;
    bool ends_here = false;  ///< its last token is in the range
};

/// The pieces that make up tokens [begin, begin + num) of a file, found by bisection: nothing is kept between calls.
std::vector<DocumentPiece> document_pieces(const TokenFile& file, std::int64_t begin, std::int64_t num);

/// Reads ranges of one shard; blocks are checked against their CRC when first touched. Memory: the CRC tables (4
/// bytes per 64 KiB) and what a call asks for. Thread-safe after construction.
class TokenShardReader : public TokenFile
{
  public:
    /// @throws FormatError "x.h5: truncated file ..." and the like, naming file and reason.
    explicit TokenShardReader(const std::string& path);
    ~TokenShardReader() override;
    TokenShardReader(TokenShardReader&&) noexcept;
    TokenShardReader& operator=(TokenShardReader&&) noexcept;

    const TokenShardInfo& info() const override;
    /// @throws FormatError on a CRC mismatch naming file and block.
    void read(std::int64_t begin, std::int64_t num, std::int64_t* tokens) const override;
    void read_loss_mask(std::int64_t begin, std::int64_t num, std::uint8_t* mask) const override;
    void read_document_ends(std::int64_t first, std::int64_t num, std::uint64_t* ends) const override;
    /// Document ends (exclusive) in tokens and text bytes per document.
    std::vector<std::uint64_t> document_ends() const;
    std::vector<std::uint64_t> document_text_bytes() const;
    /// Reads everything: all CRCs, ids below the vocabulary, document ends and text bytes that add up.
    /// `on_bytes` is told how many bytes were checked since its last call.
    void verify(const std::function<void(std::int64_t)>& on_bytes = {}) const;
    /// What TokenShardInfo::skeleton_crc must be, from the file.
    std::uint32_t skeleton_crc() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// A sequence of shards read as one virtual concatenation of tokens. Thread-safe after construction.
///
/// There is no index to build: what the start needs of a shard stands in the manifest.json beside it (or above it), else in its
/// header. A shard with a manifest row and the size that the row says is opened when first read, and must then be the one
/// described. At most 256 shards are open, so memory and descriptors do not grow with their number.
class TokenSource
{
  public:
    static constexpr std::size_t max_open = 256;

    /// "megatron:PREFIX" reads PREFIX.bin and PREFIX.idx in place; such files say neither vocabulary nor tokenizer: `vocab` is theirs,
    /// and every id is held against it when read. Vocabulary and fingerprint of all must agree.
    /// @throws FormatError naming both files and the field, ConfigError for an empty list
    explicit TokenSource(const std::vector<std::string>& paths, std::int64_t vocab = 0);
    ~TokenSource();
    TokenSource(TokenSource&&) noexcept;
    TokenSource& operator=(TokenSource&&) noexcept;

    const std::vector<TokenShardInfo>& shards() const { return infos_; }
    std::int64_t num_tokens() const { return num_tokens_; }
    std::int64_t text_bytes() const { return text_bytes_; }
    std::int64_t vocab() const { return infos_.front().vocab; }
    /// Empty where the files do not know their tokenizer.
    const std::string& fingerprint() const { return infos_.front().fingerprint; }
    bool has_loss_mask() const;
    /// Tokens [begin, begin + num) of the concatenation and their loss mask (null: not wanted).
    /// @throws FormatError also where a shard is not what its manifest says
    void read(std::int64_t begin, std::int64_t num, std::int64_t* tokens, std::uint8_t* loss_mask) const;
    /// The pieces of documents in that range.
    std::vector<DocumentPiece> pieces(std::int64_t begin, std::int64_t num) const;
    /// Shards that are open now.
    std::size_t num_open() const;

  private:
    struct Open;
    std::size_t shard_of(std::int64_t token) const;
    std::vector<TokenShardInfo> infos_;
    std::vector<std::int64_t> first_documents_;
    std::vector<std::int64_t> starts_;
    std::int64_t num_tokens_ = 0;
    std::int64_t text_bytes_ = 0;
    std::unique_ptr<Open> open_;
};

}  // namespace plimsoll
