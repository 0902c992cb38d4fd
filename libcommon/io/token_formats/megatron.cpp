#include "io/token_formats/megatron.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "io/token_formats/megatron_layout.hpp"

namespace plimsoll
{

namespace layout = megatron_layout;

namespace
{

constexpr std::int64_t table_step = 1 << 16;  ///< entries of a table in memory at a time

std::string prefix_of(const std::string& path)
{
    const std::size_t size = path.size();
    const bool ending = size > 4 && (path.compare(size - 4, 4, ".idx") == 0 || path.compare(size - 4, 4, ".bin") == 0);
    return ending ? path.substr(0, size - 4) : path;
}

Dtype dtype_of_code(std::uint8_t code, const std::string& path)
{
    const char* refused = nullptr;
    switch (code)
    {
        case layout::code_u8: return Dtype::u8;
        case layout::code_u16: return Dtype::u16;
        case layout::code_i32: return Dtype::i32;
        case layout::code_i64: return Dtype::i64;
        case layout::code_i8: refused = "i8"; break;
        case layout::code_i16: refused = "i16"; break;
        case layout::code_f32: refused = "f32"; break;
        case layout::code_f64: refused = "f64"; break;
        default: throw FormatError(fmt::format("{}: element type code {} (known: 1 to 8)", path, code));
    }
    throw FormatError(
        fmt::format("{}: elements of type {} are no token ids (u8, u16, i32 and i64 are)", path, refused));
}

template<class T>
T entry_at(const File& file, std::int64_t offset)
{
    T value{};
    file.read_at(&value, static_cast<std::int64_t>(sizeof(T)), offset);
    return value;
}

template<class T>
void widen_tokens(const char* bytes, std::int64_t num, std::int64_t* out)
{
    for (std::int64_t i = 0; i < num; ++i)
    {
        T value;
        std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
        out[i] = static_cast<std::int64_t>(value);
    }
}

}  // namespace

MegatronReader::MegatronReader(const std::string& path)
    : prefix_(prefix_of(path)),
      index_(prefix_ + ".idx", File::Mode::read),
      bin_(prefix_ + ".bin", File::Mode::read),
      index_bytes_(index_.size()),
      bin_bytes_(bin_.size())
{
    read_header();
    check_outer_entries();
}

std::int64_t MegatronReader::lengths_offset() const { return layout::header_bytes; }
std::int64_t MegatronReader::pointers_offset() const { return lengths_offset() + 4 * num_sequences_; }
std::int64_t MegatronReader::documents_offset() const { return pointers_offset() + 8 * num_sequences_; }

void MegatronReader::read_header()
{
    const std::string& path = index_.path();
    char header[layout::header_bytes] = {};
    index_.read_at(header, std::min(layout::header_bytes, index_bytes_), 0);
    VALIDATE(std::memcmp(header, layout::magic, layout::magic_bytes) == 0, FormatError,
             "{}: not an index of Megatron's (it does not start with MMIDIDX)", path);
    VALIDATE(index_bytes_ >= layout::header_bytes, FormatError, "{}: truncated index ({} bytes, its header has {})",
             path, index_bytes_, layout::header_bytes);
    std::uint64_t version = 0, sequences = 0, boundaries = 0;
    std::memcpy(&version, header + 9, 8);
    std::memcpy(&sequences, header + 18, 8);
    std::memcpy(&boundaries, header + 26, 8);
    VALIDATE(version == layout::version, FormatError, "{}: index of version {} (this version reads {})", path, version,
             layout::version);
    dtype_ = dtype_of_code(static_cast<std::uint8_t>(header[17]), path);
    const auto size = static_cast<std::uint64_t>(index_bytes_);
    // Bounded first, so that the sum below cannot overflow.
    const bool plausible = sequences <= size / 12 && boundaries <= size / 8;
    const std::uint64_t expected = plausible ? layout::header_bytes + 12 * sequences + 8 * boundaries : 0;
    VALIDATE(plausible && (size == expected || size == expected + sequences), FormatError,
             "{}: {} bytes do not hold the {} sequences and {} document boundaries of its header (truncated file?)",
             path, size, sequences, boundaries);
    VALIDATE(boundaries >= 1, FormatError, "{}: no document boundaries (the first one, 0, is missing)", path);
    num_sequences_ = static_cast<std::int64_t>(sequences);
    num_documents_ = static_cast<std::int64_t>(boundaries) - 1;
    has_modes_ = sequences > 0 && size == expected + sequences;
    const std::int64_t width = dtype_bytes(dtype_);
    VALIDATE(bin_bytes_ % width == 0, FormatError, "{}: {} bytes are no whole number of {} tokens", bin_.path(),
             bin_bytes_, dtype_name(dtype_));
    num_tokens_ = bin_bytes_ / width;
}

void MegatronReader::check_outer_entries() const
{
    const std::string& path = index_.path();
    std::int64_t described = 0;
    if (num_sequences_ > 0)
    {
        const auto first = entry_at<std::int64_t>(index_, pointers_offset());
        VALIDATE(first == 0, FormatError, "{}: sequence 0 starts at byte {}, not at 0", path, first);
        const auto length = entry_at<std::int32_t>(index_, pointers_offset() - 4);
        const auto pointer = entry_at<std::int64_t>(index_, documents_offset() - 8);
        VALIDATE(length >= 0 && pointer >= 0 && pointer <= bin_bytes_, FormatError,
                 "{}: the last sequence has {} tokens from byte {} on ({} has {} bytes)", path, length, pointer,
                 bin_.path(), bin_bytes_);
        described = pointer + length * dtype_bytes(dtype_);
    }
    VALIDATE(described == bin_bytes_, FormatError, "{}: {} bytes, its index describes {} (truncated file?)",
             bin_.path(), bin_bytes_, described);
    const auto first = entry_at<std::int64_t>(index_, documents_offset());
    const auto last = entry_at<std::int64_t>(index_, documents_offset() + 8 * num_documents_);
    VALIDATE(first == 0, FormatError, "{}: the first document boundary is {}, not 0", path, first);
    VALIDATE(last == num_sequences_, FormatError, "{}: the last document ends at sequence {}, there are {}", path, last,
             num_sequences_);
}

void MegatronReader::read(std::int64_t begin, std::int64_t num, std::int64_t* tokens) const
{
    EXPECT(begin >= 0 && num >= 0 && begin + num <= num_tokens_);
    const std::int64_t width = dtype_bytes(dtype_);
    const std::int64_t piece = std::min<std::int64_t>(num, (1 << 20) / width);
    std::vector<char> bytes(static_cast<std::size_t>(piece * width));
    for (std::int64_t done = 0; done < num;)
    {
        const std::int64_t count = std::min(piece, num - done);
        bin_.read_at(bytes.data(), count * width, (begin + done) * width);
        std::int64_t* out = tokens + done;
        switch (width)
        {
            case 1: widen_tokens<std::uint8_t>(bytes.data(), count, out); break;
            case 2: widen_tokens<std::uint16_t>(bytes.data(), count, out); break;
            case 4: widen_tokens<std::int32_t>(bytes.data(), count, out); break;
            default: widen_tokens<std::int64_t>(bytes.data(), count, out); break;
        }
        if (width >= 4)
        {
            const std::int64_t* negative = std::find_if(out, out + count, [](std::int64_t id) { return id < 0; });
            VALIDATE(negative == out + count, FormatError, "{}: token {} is {} (negative)", bin_.path(),
                     begin + done + (negative - out), *negative);
        }
        done += count;
    }
}

void MegatronReader::read_document_ends(std::int64_t first, std::int64_t num, std::uint64_t* ends) const
{
    EXPECT(first >= 0 && num >= 0 && first + num <= num_documents_);
    const std::int64_t width = dtype_bytes(dtype_);
    std::vector<std::int64_t> sequences(static_cast<std::size_t>(std::min(num, table_step)));
    std::vector<std::int64_t> pointers;
    std::int64_t window_begin = 0;  // of `pointers`, in sequences
    std::int64_t previous = 0;
    for (std::int64_t done = 0; done < num;)
    {
        const std::int64_t count = std::min(table_step, num - done);
        index_.read_at(sequences.data(), count * 8, documents_offset() + 8 * (first + done + 1));
        for (std::int64_t i = 0; i < count; ++i)
        {
            const std::int64_t sequence = sequences[static_cast<std::size_t>(i)];
            VALIDATE(sequence >= previous && sequence <= num_sequences_, FormatError,
                     "{}: document {} ends at sequence {} (the one before at {}, there are {})", index_.path(),
                     first + done + i, sequence, previous, num_sequences_);
            previous = sequence;
            if (sequence == num_sequences_)
            {
                ends[done + i] = static_cast<std::uint64_t>(num_tokens_);
                continue;
            }
            if (sequence >= window_begin + static_cast<std::int64_t>(pointers.size()) || sequence < window_begin)
            {
                window_begin = sequence;
                pointers.resize(static_cast<std::size_t>(std::min(table_step, num_sequences_ - sequence)));
                index_.read_at(pointers.data(), static_cast<std::int64_t>(pointers.size()) * 8,
                               pointers_offset() + 8 * sequence);
            }
            const std::int64_t pointer = pointers[static_cast<std::size_t>(sequence - window_begin)];
            const bool fits = pointer >= 0 && pointer <= bin_bytes_ && pointer % width == 0;
            VALIDATE(fits && (done + i == 0 || static_cast<std::uint64_t>(pointer / width) >= ends[done + i - 1]),
                     FormatError, "{}: sequence {} starts at byte {} (offsets are the running sum of lengths)",
                     index_.path(), sequence, pointer);
            ends[done + i] = static_cast<std::uint64_t>(pointer / width);
        }
        done += count;
    }
}

std::vector<std::uint64_t> MegatronReader::document_ends() const
{
    std::vector<std::uint64_t> ends(static_cast<std::size_t>(num_documents_));
    read_document_ends(0, num_documents_, ends.data());
    return ends;
}

void MegatronReader::verify_sequences() const
{
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(std::min(table_step, num_sequences_)));
    std::vector<std::int64_t> pointers(lengths.size());
    const std::int64_t width = dtype_bytes(dtype_);
    std::int64_t expected = 0;
    for (std::int64_t begin = 0; begin < num_sequences_; begin += table_step)
    {
        const std::int64_t count = std::min(table_step, num_sequences_ - begin);
        index_.read_at(lengths.data(), count * 4, lengths_offset() + 4 * begin);
        index_.read_at(pointers.data(), count * 8, pointers_offset() + 8 * begin);
        for (std::int64_t i = 0; i < count; ++i)
        {
            const auto at = static_cast<std::size_t>(i);
            VALIDATE(lengths[at] >= 0, FormatError, "{}: sequence {} has {} tokens", index_.path(), begin + i,
                     lengths[at]);
            VALIDATE(pointers[at] == expected, FormatError,
                     "{}: sequence {} starts at byte {}, the lengths before it add up to {}", index_.path(), begin + i,
                     pointers[at], expected);
            expected += lengths[at] * width;
        }
    }
}

void MegatronReader::verify_documents() const
{
    std::vector<std::int64_t> ends(static_cast<std::size_t>(std::min(table_step, num_documents_)));
    std::int64_t previous = 0;
    for (std::int64_t begin = 0; begin < num_documents_; begin += table_step)
    {
        const std::int64_t count = std::min(table_step, num_documents_ - begin);
        index_.read_at(ends.data(), count * 8, documents_offset() + 8 * (begin + 1));
        for (std::int64_t i = 0; i < count; ++i)
        {
            const std::int64_t end = ends[static_cast<std::size_t>(i)];
            VALIDATE(end >= previous && end <= num_sequences_, FormatError,
                     "{}: document {} ends at sequence {} (the one before at {}, there are {})", index_.path(),
                     begin + i, end, previous, num_sequences_);
            previous = end;
        }
    }
}

void MegatronReader::verify_index() const
{
    verify_sequences();
    verify_documents();
}

void MegatronReader::verify(std::int64_t vocab, const std::function<void(std::int64_t)>& on_bytes) const
{
    verify_index();
    if (on_bytes) { on_bytes(index_bytes_); }
    constexpr std::int64_t step = 1 << 18;
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(std::min(step, num_tokens_)));
    for (std::int64_t begin = 0; begin < num_tokens_; begin += step)
    {
        const std::int64_t num = std::min(step, num_tokens_ - begin);
        read(begin, num, tokens.data());
        for (std::int64_t i = 0; vocab > 0 && i < num; ++i)
        {
            VALIDATE(tokens[static_cast<std::size_t>(i)] < vocab, FormatError,
                     "{}: token {} is {}, not below the vocabulary of {}", bin_.path(), begin + i,
                     tokens[static_cast<std::size_t>(i)], vocab);
        }
        if (on_bytes) { on_bytes(num * dtype_bytes(dtype_)); }
    }
}

MegatronDocuments::MegatronDocuments(const std::string& path) : reader_(path) { reader_.verify_index(); }

bool MegatronDocuments::next(TokenDocument& document)
{
    if (document_ == reader_.num_documents()) { return false; }
    if (document_ == window_begin_ + static_cast<std::int64_t>(ends_.size()))
    {
        window_begin_ = document_;
        ends_.resize(static_cast<std::size_t>(std::min(table_step, reader_.num_documents() - document_)));
        reader_.read_document_ends(document_, static_cast<std::int64_t>(ends_.size()), ends_.data());
    }
    const auto end = static_cast<std::int64_t>(ends_[static_cast<std::size_t>(document_ - window_begin_)]);
    document.mask.clear();
    document.text_bytes = -1;
    document.ids.resize(static_cast<std::size_t>(end - token_));
    wide_.resize(static_cast<std::size_t>(std::min<std::int64_t>(1 << 16, end - token_)));
    for (std::int64_t done = 0; token_ < end;)
    {
        const std::int64_t num = std::min(static_cast<std::int64_t>(wide_.size()), end - token_);
        reader_.read(token_, num, wide_.data());
        for (std::int64_t i = 0; i < num; ++i)
        {
            const std::int64_t id = wide_[static_cast<std::size_t>(i)];
            VALIDATE(id <= 0xffffffffll, FormatError, "{}.bin: token {} is {} (ids have 32 bits)", reader_.prefix(),
                     token_ + i, id);
            document.ids[static_cast<std::size_t>(done + i)] = static_cast<std::uint32_t>(id);
        }
        token_ += num;
        done += num;
    }
    ++document_;
    return true;
}

std::int64_t MegatronDocuments::total_bytes() const { return reader_.num_tokens() * dtype_bytes(reader_.dtype()); }
std::int64_t MegatronDocuments::bytes_read() const { return token_ * dtype_bytes(reader_.dtype()); }

}  // namespace plimsoll
