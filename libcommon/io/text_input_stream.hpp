#pragma once
/// The bytes of one input file, decompressed, from front to back.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "io/text_input.hpp"

namespace plimsoll
{

/// Bytes that grow without being copied or cleared (large ones move by their pages).
class ByteBuffer
{
  public:
    ByteBuffer() = default;
    ~ByteBuffer() { std::free(data_); }
    ByteBuffer(ByteBuffer&& other) noexcept { swap(other); }
    ByteBuffer& operator=(ByteBuffer&& other) noexcept
    {
        swap(other);
        return *this;
    }
    ByteBuffer(const ByteBuffer&) = delete;
    ByteBuffer& operator=(const ByteBuffer&) = delete;

    char* data() { return data_; }
    const char* data() const { return data_; }
    std::int64_t capacity() const { return capacity_; }
    /// Keeps the content. @throws std::bad_alloc
    void reserve(std::int64_t bytes);

  private:
    void swap(ByteBuffer& other) noexcept
    {
        std::swap(data_, other.data_);
        std::swap(capacity_, other.capacity_);
    }

    char* data_ = nullptr;
    std::int64_t capacity_ = 0;
};

/// The data themselves are broken ("truncated gzip data"): everything before was delivered.
class DamagedStream : public FormatError
{
  public:
    using FormatError::FormatError;
};

class ByteStream
{
  public:
    virtual ~ByteStream() = default;
    /// At least one byte and up to `capacity`; 0 at the end. @throws IoError, DamagedStream
    virtual std::int64_t read(char* to, std::int64_t capacity) = 0;
    /// Passes over the next bytes; less at the end.
    virtual void skip(std::int64_t bytes);
    /// Bytes of the file itself taken so far.
    virtual std::int64_t file_bytes() const = 0;
};

/// Of a whole file, of standard input, or of bytes [begin, end) of an uncompressed file.
std::unique_ptr<ByteStream> open_byte_stream(const InputFile& file);

/// By the first bytes of a file.
Compression compression_of(const char* first, std::int64_t bytes);

/// Where the first line at or behind `at` starts in an uncompressed file (its size when none does).
std::int64_t line_start_behind(const std::string& path, std::int64_t at);
/// Line feeds in the first `bytes` bytes of a file.
std::int64_t count_lines(const std::string& path, std::int64_t bytes);

}  // namespace plimsoll
