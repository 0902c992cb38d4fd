#include "io/corpus_bad_records.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"

namespace plimsoll
{

void BadRecordFile::add(const BadRecord& record)
{
    nlohmann::ordered_json row;
    row["file"] = record.file;
    row["line"] = record.line;
    row["offset"] = record.offset;
    row["reason"] = record.reason;
    append(row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void BadRecordFile::append(const std::string& rows)
{
    const auto bytes = static_cast<std::int64_t>(rows.size());
    if (bytes == 0) { return; }
    if (!file_) { file_.emplace(path_, File::Mode::create); }
    file_->write_at(rows.data(), bytes, bytes_);
    crc_ = crc32c(rows.data(), bytes, crc_);
    bytes_ += bytes;
}

void BadRecordFile::sync()
{
    if (file_) { file_->sync(); }
}

void BadRecordFile::finish()
{
    if (!file_) { return; }
    file_->sync();
    file_->close();
}

void BadRecordFile::resume(std::int64_t bytes, std::uint32_t crc)
{
    file_.reset();
    bytes_ = 0;
    crc_ = 0;
    if (bytes == 0) { return; }
    file_.emplace(path_, File::Mode::read_write);
    std::vector<char> piece(1 << 16);
    while (bytes_ < bytes)
    {
        const std::int64_t part = std::min<std::int64_t>(bytes - bytes_, 1 << 16);
        file_->read_at(piece.data(), part, bytes_);
        crc_ = crc32c(piece.data(), part, crc_);
        bytes_ += part;
    }
    VALIDATE(crc_ == crc, FormatError, "{}: is not what it was", path_);
    // Rows that a later state would have counted are written again.
    if (::ftruncate(file_->descriptor(), bytes) != 0) { throw_io_error("shorten", path_, errno); }
}

}  // namespace plimsoll
