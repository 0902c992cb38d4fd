#include "io/text_input_documents.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "io/utf8.hpp"

namespace plimsoll
{

namespace
{

constexpr std::string_view replacement_text = "\xEF\xBF\xBD";

bool is_blank_text(std::string_view text)
{
    return std::all_of(text.begin(), text.end(), [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
}

std::string_view without_carriage_return(std::string_view text)
{
    if (!text.empty() && text.back() == '\r') { text.remove_suffix(1); }
    return text;
}

std::string_view view(const char* data, std::int64_t bytes) { return {data, static_cast<std::size_t>(bytes)}; }

/// Whether "\ud" or "\uD" occurs, at the speed of memory: most text has no escaped surrogate at all.
bool has_surrogate_escape(const char* data, std::int64_t bytes)
{
    unsigned found = 0;
    for (std::int64_t i = 0; i + 2 < bytes; ++i)
    {
        found |= static_cast<unsigned>(data[i] == '\\') & static_cast<unsigned>(data[i + 1] == 'u') &
                 static_cast<unsigned>((data[i + 2] | 0x20) == 'd');
    }
    return found != 0;
}

}  // namespace

BlockDocuments::BlockDocuments(const std::vector<InputFile>& files, const TextInputOptions& options)
    : files_(files),
      options_(options),
      parser_(options.text_field)
{
    if (options.records.format != RecordFormat::text) { records_.emplace(options.records); }
}

void BlockDocuments::start(TextBlock& block)
{
    block_ = &block;
    at_ = 0;
    line_ = block.begin.line;
    bad_.clear();
    // Borders of records are ASCII, so a block is valid when its records are; the strings of Parquet have no borders.
    valid_utf8_ = file().format != TextFormat::parquet && is_valid_utf8(view(block.data.data(), block.bytes));
    surrogates_possible_ = file().format == TextFormat::jsonl && has_surrogate_escape(block.data.data(), block.bytes);
}

bool BlockDocuments::next(Document& document)
{
    const bool found = next_in_block(document);
    if (!found) { forget_long_records(); }
    return found;
}

/// Each thread meets a long record now and then; only the one that has it may hold memory for it.
void BlockDocuments::forget_long_records()
{
    const std::int64_t ordinary = 4 * options_.block_bytes;
    if (static_cast<std::int64_t>(mended_.capacity()) > ordinary) { std::string().swap(mended_); }
    if (block_->bytes > ordinary && file().format == TextFormat::jsonl)
    {
        parser_ = TextFieldParser(options_.text_field);
    }
    if (records_ && block_->bytes > ordinary) { records_.emplace(options_.records); }
}

bool BlockDocuments::next_in_block(Document& document)
{
    document.parts.clear();
    document.ids.clear();
    document.mask.clear();
    if (!block_->bad.empty())
    {
        if (at_ > 0) { return false; }
        at_ = 1;
        return bad(document, block_->begin.line + 1, block_->begin.offset, block_->bad);
    }
    if (file().format == TextFormat::parquet) { return next_row(document); }
    if (file().format == TextFormat::jsonl) { return next_json(document); }
    switch (options_.document)
    {
        case DocumentUnit::line: return next_plain_line(document);
        case DocumentUnit::blank_line: return next_paragraph(document);
        default: return next_whole(document);
    }
}

bool BlockDocuments::reject(Document& document, std::string reason)
{
    return bad(document, document.line, document.offset, std::move(reason));
}

/// Lines of a divided file are counted from its range on; what is told to people counts from its start. Looked up only when
/// somebody is told.
std::int64_t BlockDocuments::lines_before_range()
{
    if (file().begin == 0) { return 0; }
    if (lines_before_.first != block_->begin.file)
    {
        lines_before_ = {block_->begin.file, count_lines(file().path, line_start_behind(file().path, file().begin))};
    }
    return lines_before_.second;
}

/// True: a document stands in the place of the record.
bool BlockDocuments::bad(Document& document, std::int64_t line, std::int64_t offset, std::string reason)
{
    ++counts_.bad_records;
    line += lines_before_range();
    VALIDATE(options_.on_bad_record != BadRecordPolicy::error, FormatError,
             "{}:{}: {}. mend it or use --on-bad-record skip", file().path, line, reason);
    BadRecord record;
    record.file = file().path;
    record.line = line;
    record.offset = offset;
    record.reason = std::move(reason);
    bad_.push_back(std::move(record));
    document.parts.clear();
    document.ids.clear();
    document.mask.clear();
    document.text = replacement_text;
    document.line = line;
    document.offset = offset;
    return options_.on_bad_record == BadRecordPolicy::replace;
}

std::string BlockDocuments::too_long() const
{
    return fmt::format("longer than --max-record-bytes {}", options_.max_record_bytes);
}

/// Valid UTF-8 of `raw`: itself, or its mended copy.
std::string_view BlockDocuments::valid_text(std::string_view raw, bool checked)
{
    if (checked || is_valid_utf8(raw)) { return raw; }
    mended_.clear();
    if (mended_.capacity() < raw.size()) { mended_.reserve(raw.size() + TextBlock::padding); }
    counts_.invalid_utf8 += replace_invalid_utf8(raw, mended_);
    return mended_;
}

bool BlockDocuments::next_line(Line& line)
{
    if (at_ >= block_->bytes) { return false; }
    char* const begin = block_->data.data() + at_;
    const std::int64_t left = block_->bytes - at_;
    const void* feed = std::memchr(begin, '\n', static_cast<std::size_t>(left));
    line.data = begin;
    line.bytes = feed != nullptr ? static_cast<const char*>(feed) - begin : left;
    line.ended = feed != nullptr;
    line.number = ++line_;
    line.offset = block_->begin.offset + at_;
    at_ += line.bytes + (line.ended ? 1 : 0);
    return true;
}

bool BlockDocuments::next_json(Document& document)
{
    Line line;
    while (next_line(line))
    {
        std::string reason;
        if (line.bytes > options_.max_record_bytes) { reason = too_long(); }
        else if (is_blank_text(view(line.data, line.bytes))) { continue; }
        else
        {
            reason = parse_json(line, document);
            if (reason.empty())
            {
                document.line = line.number;
                document.offset = line.offset;
                return true;
            }
            if (!line.ended) { reason += ", in a last line without line feed (truncated file?)"; }
        }
        if (bad(document, line.number, line.offset, std::move(reason))) { return true; }
    }
    return false;
}

std::string BlockDocuments::parse_json(Line line, Document& document)
{
    const std::string_view raw = view(line.data, line.bytes);
    const std::string_view valid = valid_text(raw, valid_utf8_);
    if (valid.data() != raw.data())
    {
        mended_.reserve(mended_.size() + TextBlock::padding);
        line.data = mended_.data();
        line.bytes = static_cast<std::int64_t>(mended_.size());
    }
    if (surrogates_possible_) { counts_.lone_surrogates += replace_lone_surrogate_escapes(line.data, line.bytes); }
    if (records_) { return records_->parse(line.data, line.bytes, document); }
    return parser_.parse(line.data, line.bytes, document.text);
}

bool BlockDocuments::next_plain_line(Document& document)
{
    Line line;
    while (next_line(line))
    {
        if (line.bytes > options_.max_record_bytes)
        {
            if (bad(document, line.number, line.offset, too_long())) { return true; }
            continue;
        }
        document.text = valid_text(without_carriage_return(view(line.data, line.bytes)), valid_utf8_);
        document.line = line.number;
        document.offset = line.offset;
        return true;
    }
    return false;
}

bool BlockDocuments::next_paragraph(Document& document)
{
    while (true)
    {
        Line line;
        const char* begin = nullptr;
        std::int64_t bytes = 0;
        while (next_line(line))
        {
            const bool blank = is_blank_text(view(line.data, line.bytes));
            if (blank && begin != nullptr) { break; }
            if (blank) { continue; }
            if (begin == nullptr)
            {
                begin = line.data;
                document.line = line.number;
                document.offset = line.offset;
            }
            bytes = line.data + line.bytes - begin;
        }
        if (begin == nullptr) { return false; }
        if (bytes <= options_.max_record_bytes)
        {
            document.text = valid_text(without_carriage_return(view(begin, bytes)), valid_utf8_);
            return true;
        }
        if (bad(document, document.line, document.offset, too_long())) { return true; }
    }
}

bool BlockDocuments::next_whole(Document& document)
{
    if (at_ > 0) { return false; }
    at_ = 1;
    document.text = valid_text(view(block_->data.data(), block_->bytes), valid_utf8_);
    document.line = 1;
    document.offset = 0;
    return true;
}

bool BlockDocuments::next_row(Document& document)
{
    while (at_ < static_cast<std::int64_t>(block_->rows.size()))
    {
        const ParquetRow& row = block_->rows[static_cast<std::size_t>(at_++)];
        document.line = ++line_;
        document.offset = 0;
        if (row.kind == ParquetRow::Kind::text)
        {
            document.text = valid_text(view(block_->data.data() + row.begin, row.bytes), false);
            return true;
        }
        const bool null = row.kind == ParquetRow::Kind::null;
        if (bad(document, line_, 0,
                null ? fmt::format("field '{}' is null, not a string", options_.text_field) : too_long()))
        {
            return true;
        }
    }
    return false;
}

}  // namespace plimsoll
