#pragma once
/// Input files cut into blocks of whole records, for several threads to work on: the reading side of text_input.hpp.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/text_input_parquet.hpp"
#include "io/text_input_stream.hpp"

namespace plimsoll
{

/// A border between two records.
struct InputPosition
{
    std::int64_t file = 0;    ///< index in the list of files
    std::int64_t offset = 0;  ///< bytes of its text before; of Parquet rows
    std::int64_t line = 0;    ///< lines before, counted from InputFile::begin; of Parquet rows
};

/// Whole records of one file. Its text has at least `padding` readable bytes behind it.
struct TextBlock
{
    static constexpr std::int64_t padding = 64;

    InputPosition begin;
    InputPosition end;            ///< where the next block begins
    std::int64_t file_bytes = 0;  ///< taken from all files up to its end
    std::int64_t text_bytes = 0;  ///< read for it: its text, or what was passed over
    ByteBuffer data;
    std::int64_t bytes = 0;
    std::vector<ParquetRow> rows;  ///< of Parquet: the records; else they are lines, paragraphs or the whole
    bool ends_file = false;        ///< nothing follows: a last line may lack its line feed
    std::string bad;               ///< not empty: one record that cannot be used, and why
};

/// Of one thread. Memory: the longest record (max_record_bytes at most) and twice block_bytes, a decompressor's window, and
/// what a batch of Parquet takes.
class BlockReader
{
  public:
    /// Begins at `from`, which an earlier reader gave as the end of a block of the same files under the same options.
    BlockReader(std::vector<InputFile> files, const TextInputOptions& options, InputPosition from = {});
    ~BlockReader();
    BlockReader(const BlockReader&) = delete;
    BlockReader& operator=(const BlockReader&) = delete;

    /// False after the last. @throws IoError, FormatError for a Parquet file that cannot be read at all
    bool next(TextBlock& block);
    double read_seconds() const { return read_seconds_; }

  private:
    const InputFile& file() const { return files_[static_cast<std::size_t>(at_.file)]; }
    void open();
    void close();
    bool next_in_file(TextBlock& block);
    bool next_whole_file(TextBlock& block);
    bool next_rows(TextBlock& block);
    bool next_records(TextBlock& block);
    void skip_record(TextBlock& block);
    void fill(std::int64_t wanted);
    std::int64_t border_behind(std::int64_t from) const;
    void give(TextBlock& block, std::int64_t bytes);
    void finish(TextBlock& block);

    std::vector<InputFile> files_;
    TextInputOptions options_;
    InputPosition at_;
    std::int64_t file_bytes_before_ = 0;  ///< of the files that are finished
    std::unique_ptr<ByteStream> stream_;
    std::unique_ptr<ParquetInput> parquet_;
    bool stream_ended_ = false;
    std::optional<std::string> damage_;  ///< why the stream ended early
    ByteBuffer buffer_;
    std::int64_t size_ = 0;
    double read_seconds_ = 0;
};

}  // namespace plimsoll
