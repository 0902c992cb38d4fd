#pragma once
/// Fields of a protobuf message, one after the other; enough for files of a known schema. Broken input is a FormatError, never
/// more: lengths are compared with what is left before they are used.

#include <bit>
#include <cstdint>
#include <string_view>

namespace plimsoll
{

class ProtobufReader
{
  public:
    /// `message` must outlive the reader.
    explicit ProtobufReader(std::string_view message) : left_(message) {}

    /// The next field; false at the end. @throws FormatError for what is not a field of a message
    bool next();

    std::uint32_t field() const { return field_; }
    /// Of a varint or a fixed field. @throws FormatError where the field has another wire type
    std::uint64_t number() const;
    bool flag() const { return number() != 0; }
    std::int32_t int32() const { return static_cast<std::int32_t>(number()); }
    float float32() const { return std::bit_cast<float>(static_cast<std::uint32_t>(number())); }
    /// Of a length-delimited field: string, bytes or message. @throws FormatError where the field has another wire type
    std::string_view bytes() const;

  private:
    std::uint64_t varint();
    std::string_view take(std::uint64_t bytes);
    std::uint64_t fixed(std::uint64_t bytes);

    std::string_view left_;
    std::string_view bytes_;
    std::uint64_t number_ = 0;
    std::uint32_t field_ = 0;
    bool has_bytes_ = false;
};

}  // namespace plimsoll
