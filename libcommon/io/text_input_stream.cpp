#include "io/text_input_stream.hpp"

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>

#include "io/file.hpp"

namespace plimsoll
{

namespace
{

constexpr std::int64_t stream_piece = 256 << 10;

/// Bytes as they lie in a file or come from standard input.
class PlainStream final : public ByteStream
{
  public:
    explicit PlainStream(const InputFile& input)
    {
        if (input.path == standard_input) { return; }
        file_.emplace(input.path, File::Mode::read);
        begin_ = at_ = input.begin;
        end_ = input.end >= 0 ? input.end : file_->size();
    }

    std::int64_t read(char* to, std::int64_t capacity) override
    {
        if (!file_) { return read_standard_input(to, capacity); }
        const std::int64_t bytes = std::min(capacity, end_ - at_);
        if (bytes <= 0) { return 0; }
        file_->read_at(to, bytes, at_);
        at_ += bytes;
        return bytes;
    }

    void skip(std::int64_t bytes) override
    {
        if (file_) { at_ = std::min(end_, at_ + bytes); }
        else { ByteStream::skip(bytes); }
    }

    std::int64_t file_bytes() const override { return at_ - begin_; }

  private:
    std::int64_t read_standard_input(char* to, std::int64_t capacity)
    {
        while (true)
        {
            const ssize_t got = ::read(STDIN_FILENO, to, static_cast<std::size_t>(capacity));
            if (got < 0 && errno == EINTR) { continue; }
            if (got < 0) { throw_io_error("read", "standard input", errno); }
            at_ += got;
            return got;
        }
    }

    std::optional<File> file_;
    std::int64_t begin_ = 0;
    std::int64_t at_ = 0;
    std::int64_t end_ = 0;
};

/// Compressed bytes in pieces: what both decompressors read from.
class PieceReader
{
  public:
    PieceReader(std::unique_ptr<ByteStream> from, std::string first) : from_(std::move(from)), piece_(std::move(first))
    {
        end_ = static_cast<std::int64_t>(piece_.size());
    }

    /// False at the end of the file.
    bool refill()
    {
        if (begin_ < end_) { return true; }
        piece_.resize(static_cast<std::size_t>(stream_piece));
        begin_ = 0;
        end_ = from_->read(piece_.data(), stream_piece);
        return end_ > 0;
    }
    char* data() { return piece_.data() + begin_; }
    std::int64_t left() const { return end_ - begin_; }
    void take(std::int64_t bytes) { begin_ += bytes; }
    std::int64_t file_bytes() const { return from_->file_bytes() - left(); }

  private:
    std::unique_ptr<ByteStream> from_;
    std::string piece_;
    std::int64_t begin_ = 0;
    std::int64_t end_ = 0;
};

class GzipStream final : public ByteStream
{
  public:
    explicit GzipStream(PieceReader from) : from_(std::move(from))
    {
        if (inflateInit2(&state_, 15 + 16) != Z_OK) { throw std::bad_alloc(); }
    }
    ~GzipStream() override { inflateEnd(&state_); }
    GzipStream(const GzipStream&) = delete;
    GzipStream& operator=(const GzipStream&) = delete;

    std::int64_t read(char* to, std::int64_t capacity) override
    {
        const auto wanted = static_cast<uInt>(std::min<std::int64_t>(capacity, 1 << 30));
        state_.next_out = reinterpret_cast<Bytef*>(to);
        state_.avail_out = wanted;
        while (state_.avail_out == wanted)
        {
            if (between_members_) { skip_padding(); }
            const bool more = from_.refill();
            if (!more && between_members_) { return 0; }
            state_.next_in = reinterpret_cast<Bytef*>(from_.data());
            state_.avail_in = static_cast<uInt>(from_.left());
            between_members_ = false;
            const int status = inflate(&state_, Z_NO_FLUSH);
            from_.take(from_.left() - state_.avail_in);
            if (status == Z_STREAM_END)
            {
                between_members_ = true;
                inflateReset(&state_);
            }
            else if (state_.avail_out == wanted) { check(status, more); }
            else if (status != Z_OK) { break; }
        }
        return wanted - state_.avail_out;
    }

    std::int64_t file_bytes() const override { return from_.file_bytes(); }

  private:
    /// Tapes and archives fill up with zeros.
    void skip_padding()
    {
        while (from_.refill() && *from_.data() == '\0') { from_.take(1); }
    }

    void check(int status, bool more) const
    {
        if (status != Z_OK && status != Z_BUF_ERROR)
        {
            throw DamagedStream(
                fmt::format("damaged gzip data ({})", state_.msg != nullptr ? state_.msg : "no reason given"));
        }
        if (!more) { throw DamagedStream("truncated gzip data"); }
    }

    PieceReader from_;
    z_stream state_ = {};
    bool between_members_ = false;
};

class ZstdStream final : public ByteStream
{
  public:
    explicit ZstdStream(PieceReader from) : from_(std::move(from)), state_(ZSTD_createDStream(), &ZSTD_freeDStream)
    {
        if (!state_) { throw std::bad_alloc(); }
    }

    std::int64_t read(char* to, std::int64_t capacity) override
    {
        ZSTD_outBuffer out = {to, static_cast<std::size_t>(capacity), 0};
        while (out.pos == 0)
        {
            // What the decompressor still holds comes out without more input.
            if (!from_.refill() && (frame_ended_ || !held_back_))
            {
                if (frame_ended_) { return 0; }
                throw DamagedStream("truncated zstd data");
            }
            ZSTD_inBuffer in = {from_.data(), static_cast<std::size_t>(from_.left()), 0};
            const std::size_t status = ZSTD_decompressStream(state_.get(), &out, &in);
            from_.take(static_cast<std::int64_t>(in.pos));
            if (ZSTD_isError(status))
            {
                throw DamagedStream(fmt::format("damaged zstd data ({})", ZSTD_getErrorName(status)));
            }
            frame_ended_ = status == 0;
            held_back_ = out.pos == out.size;
        }
        return static_cast<std::int64_t>(out.pos);
    }

    std::int64_t file_bytes() const override { return from_.file_bytes(); }

  private:
    PieceReader from_;
    std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> state_;
    bool frame_ended_ = false;
    bool held_back_ = false;
};

/// Standard input says only when it is read what it is.
class SniffedStream final : public ByteStream
{
  public:
    explicit SniffedStream(std::string first, std::unique_ptr<ByteStream> rest)
        : first_(std::move(first)),
          rest_(std::move(rest))
    {
    }
    std::int64_t read(char* to, std::int64_t capacity) override
    {
        if (given_ == static_cast<std::int64_t>(first_.size())) { return rest_->read(to, capacity); }
        const std::int64_t bytes = std::min(capacity, static_cast<std::int64_t>(first_.size()) - given_);
        std::memcpy(to, first_.data() + given_, static_cast<std::size_t>(bytes));
        given_ += bytes;
        return bytes;
    }
    std::int64_t file_bytes() const override { return rest_->file_bytes(); }

  private:
    std::string first_;
    std::unique_ptr<ByteStream> rest_;
    std::int64_t given_ = 0;
};

std::unique_ptr<ByteStream> decompressed(Compression compression, std::unique_ptr<ByteStream> plain, std::string first)
{
    if (compression == Compression::gzip)
    {
        return std::make_unique<GzipStream>(PieceReader(std::move(plain), std::move(first)));
    }
    if (compression == Compression::zstd)
    {
        return std::make_unique<ZstdStream>(PieceReader(std::move(plain), std::move(first)));
    }
    if (first.empty()) { return plain; }
    return std::make_unique<SniffedStream>(std::move(first), std::move(plain));
}

}  // namespace

void ByteBuffer::reserve(std::int64_t bytes)
{
    if (bytes <= capacity_) { return; }
    void* grown = std::realloc(data_, static_cast<std::size_t>(bytes));
    if (grown == nullptr) { throw std::bad_alloc(); }
    data_ = static_cast<char*>(grown);
    capacity_ = bytes;
}

void ByteStream::skip(std::int64_t bytes)
{
    std::string piece(static_cast<std::size_t>(std::min(bytes, stream_piece)), '\0');
    while (bytes > 0)
    {
        const std::int64_t got = read(piece.data(), std::min(bytes, static_cast<std::int64_t>(piece.size())));
        if (got == 0) { return; }
        bytes -= got;
    }
}

Compression compression_of(const char* first, std::int64_t bytes)
{
    if (bytes >= 2 && std::memcmp(first, "\x1F\x8B", 2) == 0) { return Compression::gzip; }
    // A frame, or a skippable one in front of it.
    const bool skippable = bytes >= 4 && (static_cast<unsigned char>(first[0]) & 0xF0) == 0x50 &&
                           std::memcmp(first + 1, "\x2A\x4D\x18", 3) == 0;
    if (skippable || (bytes >= 4 && std::memcmp(first, "\x28\xB5\x2F\xFD", 4) == 0)) { return Compression::zstd; }
    return Compression::none;
}

std::unique_ptr<ByteStream> open_byte_stream(const InputFile& file)
{
    auto plain = std::make_unique<PlainStream>(file);
    if (file.path != standard_input) { return decompressed(file.compression, std::move(plain), ""); }
    std::string first(4, '\0');
    std::int64_t have = 0;
    while (have < 4)
    {
        const std::int64_t got = plain->read(first.data() + have, 4 - have);
        if (got == 0) { break; }
        have += got;
    }
    first.resize(static_cast<std::size_t>(have));
    const Compression compression = compression_of(first.data(), have);
    return decompressed(compression, std::move(plain), std::move(first));
}

std::int64_t line_start_behind(const std::string& path, std::int64_t at)
{
    const File file(path, File::Mode::read);
    const std::int64_t size = file.size();
    if (at <= 0 || at >= size) { return std::clamp<std::int64_t>(at, 0, size); }
    std::string piece(64 << 10, '\0');
    // A line starts at `at` when the byte before ends one.
    for (std::int64_t from = at - 1; from < size;)
    {
        const std::int64_t bytes = std::min(size - from, static_cast<std::int64_t>(piece.size()));
        file.read_at(piece.data(), bytes, from);
        const void* found = std::memchr(piece.data(), '\n', static_cast<std::size_t>(bytes));
        if (found != nullptr) { return from + (static_cast<const char*>(found) - piece.data()) + 1; }
        from += bytes;
    }
    return size;
}

std::int64_t count_lines(const std::string& path, std::int64_t bytes)
{
    const File file(path, File::Mode::read);
    std::string piece(static_cast<std::size_t>(std::min(bytes, std::int64_t{1} << 20)), '\0');
    std::int64_t lines = 0;
    for (std::int64_t done = 0; done < bytes;)
    {
        const std::int64_t part = std::min(bytes - done, static_cast<std::int64_t>(piece.size()));
        file.read_at(piece.data(), part, done);
        lines += std::count(piece.begin(), piece.begin() + part, '\n');
        done += part;
    }
    return lines;
}

}  // namespace plimsoll
