#pragma once
/// MosaicML's MDS: a directory of shards of samples, each a record of columns, and an index.json. A document is a sample
/// with the column `tokens` (and `loss_mask`). Layout: docs/token_formats.md.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "io/file.hpp"
#include "io/token_formats/append_file.hpp"
#include "io/token_formats/token_documents.hpp"

namespace plimsoll
{

/// How the values of a column lie in a sample.
struct MdsColumn
{
    std::string name;
    std::string encoding;          ///< as in the index: "ndarray:uint16"
    std::int64_t fixed_size = -1;  ///< bytes of each value; -1: the sample says
    bool is_array = false;         ///< ndarray, else bytes
    bool has_shape = false;        ///< the shape is the encoding's, not the sample's
    int value_code = 0;            ///< ndarray's code of the element type; 0: the sample says
};

struct MdsShard
{
    std::string path;
    std::int64_t bytes = 0;
    std::int64_t samples = 0;
    std::vector<MdsColumn> columns;  ///< sorted by name
};

struct MdsReadOptions
{
    std::string tokens_column = "tokens";
    int token_bytes = 0;  ///< of a column in the encoding `bytes`: 2, 4 or 8; 0: such a column is refused
};

/// The index of a directory. @throws FormatError for a broken index, a compressed or a missing shard, a wrong size
std::vector<MdsShard> read_mds_index(const std::string& directory);

class MdsDocuments : public DocumentReader
{
  public:
    /// @throws FormatError naming file and fault, IoError
    explicit MdsDocuments(const std::string& directory, MdsReadOptions options = {});

    bool next(TokenDocument& document) override;
    bool has_loss_mask() const override { return has_loss_mask_; }
    std::int64_t total_bytes() const override { return total_bytes_; }
    std::int64_t bytes_read() const override { return bytes_read_; }

    std::int64_t num_documents() const { return num_documents_; }
    std::int64_t num_shards() const { return static_cast<std::int64_t>(shards_.size()); }
    const std::string& encoding() const { return encoding_; }  ///< of the tokens, in the first shard

  private:
    void check_columns();
    void open_shard();
    void read_offsets();
    void read_sample(std::int64_t begin, std::int64_t end, TokenDocument& document);

    MdsReadOptions options_;
    std::vector<MdsShard> shards_;
    std::string encoding_;
    bool has_loss_mask_ = false;
    std::int64_t total_bytes_ = 0;
    std::int64_t bytes_read_ = 0;
    std::int64_t num_documents_ = 0;
    std::size_t shard_ = 0;
    std::int64_t sample_ = 0;
    std::unique_ptr<File> file_;
    std::vector<std::uint32_t> offsets_;  ///< of a window of samples, and one more
    std::int64_t window_begin_ = 0;
    std::vector<char> bytes_;
};

/// Takes ndarray:uint16 for a vocabulary up to 65,536, else ndarray:uint32; the mask is ndarray:uint8.
class MdsWriter : public DocumentWriter
{
  public:
    static constexpr std::int64_t default_size_limit = 1 << 26;

    /// Makes `directory`, which must not exist: under a hidden name until finish(). A shard ends before the sample that
    /// would take it above `size_limit` bytes. @throws UsageError when it exists
    MdsWriter(std::string directory, std::int64_t vocab, bool with_loss_mask,
              std::int64_t size_limit = default_size_limit);
    ~MdsWriter() override;

    void add(const TokenDocument& document) override;
    void finish() override;

  private:
    void write_shard();
    std::string config(bool in_index) const;

    std::string directory_;
    std::string hidden_;
    std::int64_t vocab_;
    int width_;
    bool with_loss_mask_;
    std::int64_t size_limit_;
    std::string shard_config_;
    std::unique_ptr<AppendFile> samples_;  ///< of the shard on its way
    std::vector<std::uint64_t> ends_;      ///< of them, in samples_
    std::string index_rows_;
    std::int64_t num_shards_ = 0;
    std::int64_t num_documents_ = 0;
    bool finished_ = false;
};

}  // namespace plimsoll
