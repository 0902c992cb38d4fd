#include "io/token_formats/append_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

constexpr std::int64_t append_buffer_bytes = 256 * 1024;

template<class T>
void narrow_ids(const std::uint32_t* ids, std::int64_t num, std::vector<char>& out)
{
    const std::size_t begin = out.size();
    out.resize(begin + static_cast<std::size_t>(num) * sizeof(T));
    for (std::int64_t i = 0; i < num; ++i)
    {
        const T value = static_cast<T>(ids[i]);
        std::memcpy(out.data() + begin + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
    }
}

}  // namespace

AppendFile::AppendFile(std::string path, Kind kind)
    : path_(std::move(path)),
      hidden_(path_ + ".tmp"),
      kind_(kind),
      file_(hidden_, File::Mode::create)
{
    if (kind_ == Kind::spill) { ::unlink(hidden_.c_str()); }
    buffer_.reserve(append_buffer_bytes);
}

AppendFile::~AppendFile()
{
    if (kind_ == Kind::lasting && !published_) { ::unlink(hidden_.c_str()); }
}

void AppendFile::append(const void* data, std::int64_t bytes)
{
    const char* from = static_cast<const char*>(data);
    while (bytes > 0)
    {
        const std::int64_t taken = std::min(bytes, append_buffer_bytes - static_cast<std::int64_t>(buffer_.size()));
        buffer_.insert(buffer_.end(), from, from + taken);
        from += taken;
        bytes -= taken;
        if (static_cast<std::int64_t>(buffer_.size()) == append_buffer_bytes) { flush(); }
    }
}

void AppendFile::append_ids(const std::uint32_t* ids, std::int64_t num, std::int64_t width)
{
    constexpr std::int64_t step = append_buffer_bytes / 8;
    for (std::int64_t done = 0; done < num; done += step)
    {
        const std::int64_t count = std::min(step, num - done);
        if (static_cast<std::int64_t>(buffer_.size()) + count * width > append_buffer_bytes) { flush(); }
        switch (width)
        {
            case 1: narrow_ids<std::uint8_t>(ids + done, count, buffer_); break;
            case 2: narrow_ids<std::uint16_t>(ids + done, count, buffer_); break;
            case 4: narrow_ids<std::uint32_t>(ids + done, count, buffer_); break;
            default: narrow_ids<std::uint64_t>(ids + done, count, buffer_); break;
        }
    }
}

void AppendFile::flush()
{
    if (buffer_.empty()) { return; }
    file_.write_at(buffer_.data(), static_cast<std::int64_t>(buffer_.size()), written_);
    written_ += static_cast<std::int64_t>(buffer_.size());
    buffer_.clear();
}

void AppendFile::patch(const void* data, std::int64_t bytes, std::int64_t offset)
{
    flush();
    EXPECT(offset >= 0 && offset + bytes <= written_);
    file_.write_at(data, bytes, offset);
}

void AppendFile::read_at(void* data, std::int64_t bytes, std::int64_t offset)
{
    flush();
    file_.read_at(data, bytes, offset);
}

void AppendFile::append_all(AppendFile& other)
{
    constexpr std::int64_t piece = append_buffer_bytes;
    std::vector<char> bytes(static_cast<std::size_t>(std::min(piece, other.bytes())));
    for (std::int64_t done = 0; done < other.bytes(); done += piece)
    {
        const std::int64_t num = std::min(piece, other.bytes() - done);
        other.read_at(bytes.data(), num, done);
        append(bytes.data(), num);
    }
}

void AppendFile::seal()
{
    flush();
    file_.sync();
    file_.close();
    sealed_ = true;
}

void AppendFile::publish()
{
    EXPECT(kind_ == Kind::lasting && !published_);
    if (!sealed_) { seal(); }
    rename_path(hidden_, path_);
    published_ = true;
}

}  // namespace plimsoll
