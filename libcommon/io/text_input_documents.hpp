#pragma once
/// The documents of a block: the one place where a record becomes a Document. The working side of text_input.hpp.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/record_format.hpp"
#include "io/text_input_blocks.hpp"
#include "io/text_input_json.hpp"

namespace plimsoll
{

/// Of one thread; any block of the files, in any order. Memory: what the longest record takes unescaped and mended.
class BlockDocuments
{
  public:
    BlockDocuments(const std::vector<InputFile>& files, const TextInputOptions& options);

    /// The block stays the caller's and is changed in place.
    void start(TextBlock& block);
    /// The next document; false after the last.
    /// @throws FormatError for a bad record under BadRecordPolicy::error
    bool next(Document& document);
    /// The document just given by next() cannot be used after all: as a record that never was one. True: `document` is what stands in
    /// its place. @throws FormatError under BadRecordPolicy::error
    bool reject(Document& document, std::string reason);

    /// Of all blocks so far: bad_records, invalid_utf8, lone_surrogates.
    const TextInputCounts& counts() const { return counts_; }
    /// Those of the block, in order.
    std::vector<BadRecord>& bad_records() { return bad_; }

  private:
    struct Line
    {
        char* data = nullptr;
        std::int64_t bytes = 0;
        std::int64_t number = 0;
        std::int64_t offset = 0;
        bool ended = true;
    };
    const InputFile& file() const { return files_[static_cast<std::size_t>(block_->begin.file)]; }
    bool next_in_block(Document& document);
    void forget_long_records();
    bool next_line(Line& line);
    bool next_json(Document& document);
    bool next_plain_line(Document& document);
    bool next_paragraph(Document& document);
    bool next_whole(Document& document);
    bool next_row(Document& document);
    bool bad(Document& document, std::int64_t line, std::int64_t offset, std::string reason);
    std::string parse_json(Line line, Document& document);
    std::string too_long() const;
    std::string_view valid_text(std::string_view raw, bool checked);
    std::int64_t lines_before_range();

    const std::vector<InputFile>& files_;
    const TextInputOptions& options_;
    TextFieldParser parser_;
    std::optional<RecordParser> records_;  ///< instead of it, where a record is more than a text
    TextBlock* block_ = nullptr;
    std::int64_t at_ = 0;    ///< bytes of the block that are done; of Parquet rows
    std::int64_t line_ = 0;  ///< lines of the file that are done
    bool valid_utf8_ = false;
    bool surrogates_possible_ = false;
    std::string mended_;  ///< text or record after replacement
    std::vector<BadRecord> bad_;
    TextInputCounts counts_;
    std::pair<std::int64_t, std::int64_t> lines_before_{-1, 0};  ///< of the range of a file: its index, how many
};

}  // namespace plimsoll
