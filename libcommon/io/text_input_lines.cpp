#include "io/text_input_lines.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace plimsoll
{

LineReader::LineReader(const std::string& path, std::int64_t max_line_bytes)
    : file_(path, File::Mode::read),
      max_line_bytes_(max_line_bytes),
      size_(file_.size()),
      buffer_(static_cast<std::size_t>(chunk_bytes + padding))
{
    constexpr char mark[] = {'\xEF', '\xBB', '\xBF'};
    refill();
    if (end_ >= 3 && std::memcmp(buffer_.data(), mark, 3) == 0) { begin_ = 3; }
}

bool LineReader::refill()
{
    if (read_ == size_) { return false; }
    if (begin_ > 0)
    {
        std::memmove(buffer_.data(), buffer_.data() + begin_, static_cast<std::size_t>(end_ - begin_));
        end_ -= begin_;
        begin_ = 0;
    }
    const std::int64_t wanted = std::min(chunk_bytes, size_ - read_);
    const std::int64_t capacity = static_cast<std::int64_t>(buffer_.size()) - padding;
    if (end_ + wanted > capacity)
    {
        buffer_.resize(static_cast<std::size_t>(std::max(end_ + wanted, capacity + capacity / 2) + padding));
    }
    const auto start = std::chrono::steady_clock::now();
    file_.read_at(buffer_.data() + end_, wanted, read_);
    read_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    read_ += wanted;
    end_ += wanted;
    return true;
}

void LineReader::skip_long_line()
{
    while (true)
    {
        begin_ = end_;
        if (!refill()) { return; }
        const auto* found = static_cast<const char*>(
            std::memchr(buffer_.data() + begin_, '\n', static_cast<std::size_t>(end_ - begin_)));
        if (found != nullptr)
        {
            begin_ = found - buffer_.data() + 1;
            return;
        }
    }
}

bool LineReader::next(TextLine& line)
{
    line = TextLine();
    std::int64_t scanned = 0;
    const char* found = nullptr;
    line.offset = read_ - (end_ - begin_);
    while (true)
    {
        const char* from = buffer_.data() + begin_ + scanned;
        found = static_cast<const char*>(std::memchr(from, '\n', static_cast<std::size_t>(end_ - begin_ - scanned)));
        scanned = end_ - begin_;
        if (found != nullptr || scanned > max_line_bytes_ || !refill()) { break; }
    }
    if (scanned == 0) { return false; }
    line.number = ++number_;
    line.ended = found != nullptr;
    line.data = buffer_.data() + begin_;
    line.bytes = found != nullptr ? found - line.data : scanned;
    if (line.bytes > max_line_bytes_)
    {
        line.too_long = true;
        line.bytes = 0;
        if (found != nullptr) { begin_ = found - buffer_.data() + 1; }
        else { skip_long_line(); }
        return true;
    }
    begin_ += line.bytes + (line.ended ? 1 : 0);
    return true;
}

}  // namespace plimsoll
