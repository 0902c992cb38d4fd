#include "io/text_input_blocks.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

bool is_blank_stretch(const char* from, const char* to)
{
    return std::all_of(from, to, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
}

/// memrchr over [begin, end).
const char* last_line_feed(const char* begin, const char* end)
{
    return static_cast<const char*>(::memrchr(begin, '\n', static_cast<std::size_t>(end - begin)));
}

std::int64_t line_feeds(const char* data, std::int64_t bytes) { return std::count(data, data + bytes, '\n'); }

}  // namespace

bool divisible(const InputFile& file, DocumentUnit unit)
{
    const bool lines =
        file.format == TextFormat::jsonl || (file.format == TextFormat::txt && unit == DocumentUnit::line);
    return lines && file.compression == Compression::none && file.path != standard_input;
}

BlockReader::BlockReader(std::vector<InputFile> files, const TextInputOptions& options, InputPosition from)
    : files_(std::move(files)),
      options_(options),
      at_(from)
{
    EXPECT(options.max_record_bytes > 0 && options.block_bytes > 0);
    for (InputFile& file : files_)
    {
        if (file.begin > 0) { file.begin = line_start_behind(file.path, file.begin); }
        if (file.end >= 0) { file.end = line_start_behind(file.path, file.end); }
    }
    for (std::int64_t i = 0; i < from.file; ++i)
    {
        const InputFile& file = files_[static_cast<std::size_t>(i)];
        file_bytes_before_ += (file.end >= 0 ? file.end : file.bytes) - file.begin;
    }
}

BlockReader::~BlockReader() = default;

bool BlockReader::next(TextBlock& block)
{
    const auto start = std::chrono::steady_clock::now();
    bool found = false;
    while (!found && at_.file < static_cast<std::int64_t>(files_.size()))
    {
        if (!stream_ && !parquet_) { open(); }
        block.begin = at_;
        block.rows.clear();
        block.bad.clear();
        block.bytes = 0;
        block.text_bytes = 0;
        block.ends_file = false;
        found = next_in_file(block);
        if (!found || block.ends_file) { close(); }
        block.end = at_;
        block.file_bytes = file_bytes_before_ + (stream_ ? stream_->file_bytes() : 0);
    }
    read_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return found;
}

void BlockReader::open()
{
    size_ = 0;
    stream_ended_ = false;
    damage_.reset();
    if (file().format == TextFormat::parquet)
    {
        parquet_ = std::make_unique<ParquetInput>(file().path, options_.text_field);
        parquet_->seek(at_.offset);
        return;
    }
    stream_ = open_byte_stream(file());
    if (at_.offset > file().begin)
    {
        stream_->skip(at_.offset - file().begin);
        return;
    }
    at_.offset = file().begin;
    if (file().begin > 0) { return; }
    constexpr char mark[] = {'\xEF', '\xBB', '\xBF'};
    fill(3);
    if (size_ >= 3 && std::memcmp(buffer_.data(), mark, 3) == 0)
    {
        std::memmove(buffer_.data(), buffer_.data() + 3, static_cast<std::size_t>(size_ - 3));
        size_ -= 3;
        at_.offset = 3;
    }
}

void BlockReader::close()
{
    file_bytes_before_ += stream_ ? stream_->file_bytes() : file().bytes;
    stream_.reset();
    parquet_.reset();
    ++at_.file;
    at_.offset = 0;
    at_.line = 0;
}

bool BlockReader::next_in_file(TextBlock& block)
{
    if (parquet_) { return next_rows(block); }
    const bool whole = file().format == TextFormat::txt && options_.document == DocumentUnit::file;
    return whole ? next_whole_file(block) : next_records(block);
}

/// Until the buffer holds `wanted` bytes or the file ends.
void BlockReader::fill(std::int64_t wanted)
{
    const std::int64_t room = wanted + TextBlock::padding;
    if (size_ < wanted && !stream_ended_ && room > buffer_.capacity())
    {
        // Pages that nobody touched are no memory.
        buffer_.reserve(std::max(room, buffer_.capacity() + buffer_.capacity() / 2));
    }
    while (size_ < wanted && !stream_ended_)
    {
        try
        {
            const std::int64_t got = stream_->read(buffer_.data() + size_, wanted - size_);
            size_ += got;
            stream_ended_ = got == 0;
        }
        catch (const DamagedStream& error)
        {
            damage_ = error.text();
            stream_ended_ = true;
        }
    }
}

bool BlockReader::next_whole_file(TextBlock& block)
{
    block.ends_file = true;
    const std::int64_t most = options_.max_record_bytes;
    const bool known = file().compression == Compression::none && file().path != standard_input;
    if (known && file().bytes > most)
    {
        block.bad = fmt::format("{} bytes are longer than --max-record-bytes {}", file().bytes, most);
        return true;
    }
    // One byte more than is allowed tells a file of just that length from a longer one.
    if (known) { fill(file().bytes + 1); }
    for (std::int64_t wanted = options_.block_bytes; !stream_ended_ && size_ <= most;)
    {
        fill(std::min(wanted, most + 1));
        wanted += options_.block_bytes;
    }
    if (damage_) { block.bad = *damage_; }
    else if (size_ > most) { block.bad = fmt::format("longer than --max-record-bytes {}", most); }
    buffer_.reserve(size_ + TextBlock::padding);
    give(block, size_);
    return true;
}

bool BlockReader::next_rows(TextBlock& block)
{
    bool found = true;
    try
    {
        found = parquet_->next(options_.block_bytes, options_.max_record_bytes, block.data, block.bytes, block.rows);
    }
    catch (const DamagedStream& error)
    {
        block.bad = error.text();
        block.ends_file = true;
    }
    block.text_bytes = block.bytes;
    at_.offset += static_cast<std::int64_t>(block.rows.size());
    at_.line = at_.offset;
    return found;
}

/// Behind the last record that ends at or behind `from`; 0: none does.
std::int64_t BlockReader::border_behind(std::int64_t from) const
{
    const char* const data = buffer_.data();
    const char* end = last_line_feed(data + from, data + size_);
    const bool paragraphs = file().format == TextFormat::txt && options_.document == DocumentUnit::blank_line;
    while (paragraphs && end != nullptr)
    {
        const char* before = last_line_feed(data, end);
        if (is_blank_stretch(before == nullptr ? data : before + 1, end)) { break; }
        end = before != nullptr && before >= data + from ? before : nullptr;
    }
    return end == nullptr ? 0 : end - data + 1;
}

bool BlockReader::next_records(TextBlock& block)
{
    std::int64_t scanned = 0;
    std::int64_t wanted = std::max(options_.block_bytes, size_);
    while (true)
    {
        fill(wanted);
        const std::int64_t border = border_behind(scanned);
        if (border > 0)
        {
            give(block, border);
            block.ends_file = stream_ended_ && !damage_ && size_ == 0;
            return true;
        }
        if (stream_ended_) { break; }
        if (size_ > options_.max_record_bytes + 1)
        {
            skip_record(block);
            return true;
        }
        scanned = size_;
        // No further than needed: what is read behind a long record would stay in memory with it.
        wanted = size_ + options_.block_bytes;
    }
    if (size_ == 0 && !damage_) { return false; }
    if (damage_) { block.bad = *damage_; }
    give(block, size_);
    block.ends_file = true;
    return true;
}

/// Passes over the record at the front of the buffer, which is too long to keep.
void BlockReader::skip_record(TextBlock& block)
{
    block.bad = fmt::format("longer than --max-record-bytes {}", options_.max_record_bytes);
    const bool paragraphs = file().format == TextFormat::txt && options_.document == DocumentUnit::blank_line;
    bool blank = false;  // the line so far; the record's first one is not
    while (true)
    {
        const char* const data = buffer_.data();
        std::int64_t done = 0;
        while (done < size_)
        {
            const auto* feed =
                static_cast<const char*>(std::memchr(data + done, '\n', static_cast<std::size_t>(size_ - done)));
            const char* const line_end = feed != nullptr ? feed : data + size_;
            blank = blank && is_blank_stretch(data + done, line_end);
            done = line_end - data + (feed != nullptr ? 1 : 0);
            if (feed == nullptr) { break; }
            if (!paragraphs || blank)
            {
                give(block, done);
                block.bytes = 0;
                return;
            }
            blank = true;
        }
        at_.offset += size_;
        at_.line += line_feeds(data, size_);
        block.text_bytes += size_;
        size_ = 0;
        fill(options_.block_bytes);
        if (size_ == 0)
        {
            block.ends_file = !damage_;
            return;
        }
    }
}

/// The first `bytes` of the buffer become the block's text; the rest begins the next one.
void BlockReader::give(TextBlock& block, std::int64_t bytes)
{
    at_.offset += bytes;
    at_.line += line_feeds(buffer_.data(), bytes);
    const std::int64_t rest = size_ - bytes;
    ByteBuffer next;
    if (rest > 0 || !stream_ended_) { next.reserve(std::max(rest, options_.block_bytes) + TextBlock::padding); }
    if (rest > 0) { std::memcpy(next.data(), buffer_.data() + bytes, static_cast<std::size_t>(rest)); }
    block.data = std::move(buffer_);
    block.bytes = bytes;
    block.text_bytes += bytes;
    // The caller's old buffer is in `buffer_` now and goes with `next`.
    buffer_ = std::move(next);
    size_ = rest;
}

}  // namespace plimsoll
