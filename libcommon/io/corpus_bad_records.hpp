#pragma once
/// bad_records.jsonl, made with its first row.

#include <cstdint>
#include <optional>
#include <string>

#include "io/file.hpp"
#include "io/text_input.hpp"

namespace plimsoll
{

class BadRecordFile
{
  public:
    explicit BadRecordFile(std::string path) : path_(std::move(path)) {}

    void add(const BadRecord& record);
    /// Rows as they are.
    void append(const std::string& rows);
    void finish();

    std::int64_t bytes() const { return bytes_; }
    std::uint32_t crc() const { return crc_; }
    void sync();
    /// Takes up the first `bytes` bytes of the file. @throws FormatError when they are not what they were
    void resume(std::int64_t bytes, std::uint32_t crc);

  private:
    std::string path_;
    std::optional<File> file_;
    std::int64_t bytes_ = 0;
    std::uint32_t crc_ = 0;
};

}  // namespace plimsoll
