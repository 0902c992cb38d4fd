#include "telemetry/metrics_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text_file.hpp"

namespace plimsoll
{

namespace
{

constexpr std::size_t chunk_bytes = std::size_t{1} << 18;

/// The parser's own text without its "[json.exception...] parse error at line 1, " in front.
std::string reason_of(const nlohmann::ordered_json::parse_error& error)
{
    const std::string text = error.what();
    const std::size_t column = text.find("column ");
    return column == std::string::npos ? text : text.substr(column);
}

}  // namespace

MetricsReader::MetricsReader(const std::string& path) : path_(path)
{
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    VALIDATE(fd_ >= 0, ConfigError, "cannot read metrics file '{}' ({})", path, system_reason(errno));
    struct stat info = {};
    if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode))
    {
        ::close(fd_);
        throw ConfigError(fmt::format("cannot read metrics file '{}' (not a file)", path));
    }
    end_ = info.st_size;
}

MetricsReader::~MetricsReader() { ::close(fd_); }

void MetricsReader::rewind()
{
    position_ = 0;
    buffer_.clear();
    at_ = 0;
    line_ = 0;
    num_torn_ = 0;
}

bool MetricsReader::next_line(std::string& text)
{
    std::size_t looked = at_;
    for (;;)
    {
        const std::size_t newline = buffer_.find('\n', looked);
        if (newline != std::string::npos)
        {
            text.assign(buffer_, at_, newline - at_);
            at_ = newline + 1;
            ++line_;
            return true;
        }
        VALIDATE(buffer_.size() - at_ <= max_line_bytes, FormatError, "{}:{}: not a JSON object (longer than {} bytes)",
                 path_, line_ + 1, max_line_bytes);
        buffer_.erase(0, at_);
        at_ = 0;
        looked = buffer_.size();
        const auto want = static_cast<std::size_t>(std::min<std::int64_t>(chunk_bytes, end_ - position_));
        buffer_.resize(looked + want);
        ssize_t got = -1;
        do {
            got = ::pread(fd_, buffer_.data() + looked, want, position_);
        } while (got < 0 && errno == EINTR);
        VALIDATE(got >= 0, ConfigError, "cannot read metrics file '{}' ({})", path_, system_reason(errno));
        buffer_.resize(looked + static_cast<std::size_t>(got));
        position_ += got;
        if (got > 0) { continue; }
        if (buffer_.empty()) { return false; }
        text = std::move(buffer_);
        buffer_.clear();
        ++line_;
        return true;
    }
}

bool MetricsReader::next(nlohmann::ordered_json& row)
{
    std::string text;
    while (next_line(text))
    {
        if (text.find_first_not_of(" \t\r") == std::string::npos) { continue; }
        try
        {
            row = nlohmann::ordered_json::parse(text);
        }
        catch (const nlohmann::ordered_json::parse_error& error)
        {
            // Only a kill in the middle of a write leaves an object that ends too early.
            VALIDATE(text.front() == '{' && error.byte > text.size(), FormatError, "{}: not a JSON object ({})",
                     where(), reason_of(error));
            ++num_torn_;
            continue;
        }
        VALIDATE(row.is_object(), FormatError, "{}: not a JSON object (it is {})", where(), row.type_name());
        return true;
    }
    return false;
}

}  // namespace plimsoll
