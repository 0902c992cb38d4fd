#include "io/tokenizer/protobuf_reader.hpp"

#include "base/error.hpp"

namespace plimsoll
{

bool ProtobufReader::next()
{
    if (left_.empty()) { return false; }
    const std::uint64_t tag = varint();
    VALIDATE(tag >> 3 != 0 && tag >> 32 == 0, FormatError, "broken protobuf (field number {})", tag >> 3);
    field_ = static_cast<std::uint32_t>(tag >> 3);
    has_bytes_ = false;
    switch (tag & 7)
    {
        case 0: number_ = varint(); break;
        case 1: number_ = fixed(8); break;
        case 2:
            bytes_ = take(varint());
            has_bytes_ = true;
            break;
        case 5: number_ = fixed(4); break;
        default: throw FormatError(fmt::format("broken protobuf (field {} has wire type {})", field_, tag & 7));
    }
    return true;
}

std::uint64_t ProtobufReader::number() const
{
    VALIDATE(!has_bytes_, FormatError, "broken protobuf (field {} is not a number)", field_);
    return number_;
}

std::string_view ProtobufReader::bytes() const
{
    VALIDATE(has_bytes_, FormatError, "broken protobuf (field {} is a number)", field_);
    return bytes_;
}

std::uint64_t ProtobufReader::varint()
{
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7)
    {
        const auto byte = static_cast<unsigned char>(take(1)[0]);
        value |= std::uint64_t{byte & 0x7FU} << shift;
        if (byte < 0x80) { return value; }
    }
    throw FormatError("broken protobuf (a number of more than 10 bytes)");
}

std::string_view ProtobufReader::take(std::uint64_t bytes)
{
    VALIDATE(bytes <= left_.size(), FormatError, "broken protobuf ({} bytes expected, {} left)", bytes, left_.size());
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
}

std::uint64_t ProtobufReader::fixed(std::uint64_t bytes)
{
    const std::string_view taken = take(bytes);
    std::uint64_t value = 0;
    for (std::size_t i = taken.size(); i-- > 0;) { value = value << 8 | static_cast<unsigned char>(taken[i]); }
    return value;
}

}  // namespace plimsoll
