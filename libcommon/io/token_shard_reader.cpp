#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "io/file.hpp"
#include "io/hdf5.hpp"
#include "io/outside_crc.hpp"
#include "io/token_shard.hpp"
#include "io/token_shard_format.hpp"

namespace plimsoll
{

namespace format = shard_format;

namespace
{

/// One dataset: its place in the file and the CRC of each block of it.
class CheckedRange
{
  public:
    CheckedRange(const H5File& h5, std::int64_t file_bytes, const char* data, const char* crc, std::int64_t block_bytes)
        : name_(data),
          block_bytes_(block_bytes)
    {
        const H5Dataset dataset = h5.dataset(data);
        dtype_ = dataset.dtype();
        VALIDATE(dataset.dims().size() == 1, FormatError, "{}: has {} dims, expected 1", dataset.where(),
                 dataset.dims().size());
        num_elements_ = dataset.num_elements();
        offset_ = dataset.file_offset();
        bytes_ = num_elements_ * dtype_bytes(dtype_);
        VALIDATE(bytes_ == 0 || (offset_ > 0 && offset_ + bytes_ <= file_bytes), FormatError,
                 "{}: truncated file ({} ends at byte {}, the file has {})", h5.path(), name_, offset_ + bytes_,
                 file_bytes);
        stored_total_ = static_cast<std::uint32_t>(dataset.attribute_u64("crc32c"));

        const H5Dataset table = h5.dataset(crc);
        const std::int64_t num_blocks = (bytes_ + block_bytes_ - 1) / block_bytes_;
        VALIDATE(table.num_elements() == num_blocks && table.dtype() == Dtype::u32, FormatError,
                 "{}: has {} checksums, expected {}", table.where(), table.num_elements(), num_blocks);
        crcs_.resize(static_cast<std::size_t>(num_blocks));
        if (num_blocks > 0) { table.read(crcs_.data()); }
        checked_ = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(num_blocks));
    }

    Dtype dtype() const { return dtype_; }
    std::int64_t num_elements() const { return num_elements_; }
    std::int64_t bytes() const { return bytes_; }
    std::pair<std::int64_t, std::int64_t> place() const { return {offset_, offset_ + bytes_}; }
    std::uint32_t stored_total() const { return stored_total_; }

    /// Calls take(bytes, num_bytes, offset in the dataset) for the pieces of [begin, end), each in whole blocks of at
    /// most 1 MiB where a block was not checked yet.
    template<class Take>
    void read(const File& file, std::int64_t begin, std::int64_t end, const Take& take) const
    {
        const std::int64_t piece_blocks = std::max<std::int64_t>(1, (1 << 20) / block_bytes_);
        std::vector<char> buffer;
        while (begin < end)
        {
            const std::int64_t first = begin / block_bytes_;
            const std::int64_t last = std::min((end - 1) / block_bytes_, first + piece_blocks - 1);
            const std::int64_t stop = std::min(end, (last + 1) * block_bytes_);
            bool all_checked = true;
            for (std::int64_t block = first; block <= last; ++block)
            {
                all_checked = all_checked && checked_[block].load(std::memory_order_relaxed);
            }
            const std::int64_t from = all_checked ? begin : first * block_bytes_;
            const std::int64_t to = all_checked ? stop : std::min(bytes_, (last + 1) * block_bytes_);
            buffer.resize(static_cast<std::size_t>(to - from));
            file.read_at(buffer.data(), to - from, offset_ + from);
            if (!all_checked) { check(file, buffer, first, last); }
            take(buffer.data() + (begin - from), stop - begin, begin);
            begin = stop;
        }
    }

    std::uint32_t total_of_blocks() const
    {
        std::uint32_t total = 0;
        for (std::size_t block = 0; block < crcs_.size(); ++block)
        {
            const std::int64_t size = std::min(block_bytes_, bytes_ - static_cast<std::int64_t>(block) * block_bytes_);
            total = block == 0 ? crcs_[0] : crc32c_combine(total, crcs_[block], size);
        }
        return total;
    }

  private:
    void check(const File& file, const std::vector<char>& buffer, std::int64_t first, std::int64_t last) const
    {
        for (std::int64_t block = first; block <= last; ++block)
        {
            if (checked_[block].load(std::memory_order_relaxed)) { continue; }
            const std::int64_t at = (block - first) * block_bytes_;
            const std::int64_t size = std::min(block_bytes_, static_cast<std::int64_t>(buffer.size()) - at);
            const std::uint32_t crc = crc32c(buffer.data() + at, size);
            VALIDATE(
                crc == crcs_[block], FormatError,
                "{}: block {} of {} is damaged (crc32c {:08x}, stored {:08x}). make the shard again or restore a copy",
                file.path(), block + 1, name_, crc, crcs_[block]);
            checked_[block].store(true, std::memory_order_relaxed);
        }
    }

    std::string name_;
    std::int64_t block_bytes_ = 0;
    Dtype dtype_ = Dtype::u8;
    std::int64_t num_elements_ = 0;
    std::int64_t offset_ = 0;
    std::int64_t bytes_ = 0;
    std::uint32_t stored_total_ = 0;
    std::vector<std::uint32_t> crcs_;
    std::unique_ptr<std::atomic<bool>[]> checked_;
};

template<class T>
void widen(const char* bytes, std::int64_t num, std::int64_t* out)
{
    for (std::int64_t i = 0; i < num; ++i)
    {
        T value;
        std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
        out[i] = static_cast<std::int64_t>(value);
    }
}

std::vector<std::string> split_words(const std::string& text)
{
    std::vector<std::string> words;
    for (std::size_t begin = 0; begin < text.size();)
    {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        if (end > begin) { words.push_back(text.substr(begin, end - begin)); }
        begin = end + 1;
    }
    return words;
}

void check_header(const H5File& h5)
{
    const H5Group root = h5.root();
    const std::string kind = root.has_attribute("format") ? root.attribute_string("format") : "";
    VALIDATE(kind == format::format, FormatError, "{}: not a token shard ({}). make one with plimsoll-shard", h5.path(),
             kind.empty() ? "an hdf5 file of another kind" : "format '" + kind + "'");
    const std::vector<std::uint64_t> version = root.attribute_u64s("format_version");
    VALIDATE(version.size() == 2 && version[0] == format::version_major, FormatError,
             "{}: token shard of format version {} (this version reads {}.x)", h5.path(), fmt::join(version, "."),
             format::version_major);
    for (const std::string& feature : split_words(root.attribute_string("required_features")))
    {
        VALIDATE(feature == format::feature_loss_mask, FormatError,
                 "{}: needs the feature '{}' (not available in this version)", h5.path(), feature);
    }
    VALIDATE(root.attribute_i64("complete") == 1, FormatError,
             "{}: incomplete token shard (its writer was interrupted). make it again", h5.path());
}

}  // namespace

struct TokenShardReader::Impl
{
    TokenShardInfo info;
    File file;
    std::optional<CheckedRange> tokens;
    std::optional<CheckedRange> loss_mask;
    std::optional<CheckedRange> ends;
    std::optional<CheckedRange> text_bytes;

    explicit Impl(const std::string& path) : file(path, File::Mode::read) {}

    void open()
    {
        const H5File h5 = H5File::open(file.path(), H5File::Access::read);
        check_header(h5);
        const H5Group root = h5.root();
        info.path = file.path();
        info.file_bytes = file.size();
        info.tokenizer = root.attribute_string("tokenizer");
        info.fingerprint = root.attribute_string("tokenizer_sha256");
        info.vocab = root.attribute_i64("vocab");
        info.text_bytes = root.attribute_i64("text_bytes");
        info.has_loss_mask = !split_words(root.attribute_string("required_features")).empty();
        const std::int64_t block_bytes = h5.group(format::crc_group).attribute_i64("block_bytes");
        VALIDATE(block_bytes > 0 && block_bytes % 8 == 0 && block_bytes <= (1 << 30), FormatError,
                 "{}: checksum blocks of {} bytes (expected a multiple of 8 up to 1 GiB)", info.path, block_bytes);
        const auto open_range = [&](std::optional<CheckedRange>& range, const char* data, const char* crc, Dtype dtype)
        {
            range.emplace(h5, info.file_bytes, data, crc, block_bytes);
            VALIDATE(range->dtype() == dtype, FormatError, "{}: {} is {}, expected {}", info.path, data,
                     dtype_name(range->dtype()), dtype_name(dtype));
        };
        info.dtype = format::token_dtype(info.vocab);
        open_range(tokens, format::tokens, format::tokens_crc, info.dtype);
        open_range(ends, format::document_ends, format::document_ends_crc, Dtype::u64);
        open_range(text_bytes, format::document_text_bytes, format::document_text_bytes_crc, Dtype::u64);
        info.tokens_crc = tokens->stored_total();
        if (info.has_loss_mask)
        {
            open_range(loss_mask, format::loss_mask, format::loss_mask_crc, Dtype::u8);
            info.loss_mask_crc = loss_mask->stored_total();
        }
        info.num_tokens = tokens->num_elements();
        info.num_documents = ends->num_elements();
        check_counts();
    }

    void check_counts() const
    {
        VALIDATE(info.num_documents > 0 && text_bytes->num_elements() == info.num_documents, FormatError,
                 "{}: {} document ends and {} text sizes", info.path, info.num_documents, text_bytes->num_elements());
        VALIDATE(!info.has_loss_mask || loss_mask->num_elements() == info.num_tokens, FormatError,
                 "{}: {} tokens and {} loss mask entries", info.path, info.num_tokens,
                 info.has_loss_mask ? loss_mask->num_elements() : 0);
        std::uint64_t last = 0;
        ends->read(file, (info.num_documents - 1) * 8, info.num_documents * 8,
                   [&](const char* bytes, std::int64_t, std::int64_t) { std::memcpy(&last, bytes, 8); });
        VALIDATE(static_cast<std::int64_t>(last) == info.num_tokens, FormatError,
                 "{}: the last document ends at token {}, the shard has {}", info.path, last, info.num_tokens);
    }

    std::vector<std::uint64_t> read_u64(const CheckedRange& range) const
    {
        std::vector<std::uint64_t> values(static_cast<std::size_t>(range.num_elements()));
        range.read(file, 0, range.bytes(),
                   [&](const char* bytes, std::int64_t num, std::int64_t at)
                   { std::memcpy(reinterpret_cast<char*>(values.data()) + at, bytes, static_cast<std::size_t>(num)); });
        return values;
    }

    void verify_total(const CheckedRange& range, const char* name) const
    {
        const std::uint32_t total = range.total_of_blocks();
        VALIDATE(total == range.stored_total(), FormatError, "{}: {} has crc32c {:08x}, stored {:08x}", info.path, name,
                 total, range.stored_total());
    }

    void verify_documents() const
    {
        std::uint64_t previous = 0;
        for (const std::uint64_t end : read_u64(*ends))
        {
            VALIDATE(end > previous, FormatError, "{}: a document ends at token {} after one that ends at {}",
                     info.path, end, previous);
            previous = end;
        }
        std::uint64_t sum = 0;
        for (const std::uint64_t bytes : read_u64(*text_bytes)) { sum += bytes; }
        VALIDATE(static_cast<std::int64_t>(sum) == info.text_bytes, FormatError,
                 "{}: documents have {} text bytes, the header says {}", info.path, sum, info.text_bytes);
    }
};

TokenShardReader::TokenShardReader(const std::string& path) : impl_(std::make_unique<Impl>(path)) { impl_->open(); }
TokenShardReader::~TokenShardReader() = default;
TokenShardReader::TokenShardReader(TokenShardReader&&) noexcept = default;
TokenShardReader& TokenShardReader::operator=(TokenShardReader&&) noexcept = default;

const TokenShardInfo& TokenShardReader::info() const { return impl_->info; }

void TokenShardReader::read(std::int64_t begin, std::int64_t num, std::int64_t* tokens) const
{
    EXPECT(begin >= 0 && num >= 0 && begin + num <= impl_->info.num_tokens);
    const std::int64_t width = dtype_bytes(impl_->info.dtype);
    impl_->tokens->read(impl_->file, begin * width, (begin + num) * width,
                        [&](const char* bytes, std::int64_t num_bytes, std::int64_t at)
                        {
                            std::int64_t* out = tokens + (at / width - begin);
                            if (width == 2) { widen<std::uint16_t>(bytes, num_bytes / 2, out); }
                            else { widen<std::uint32_t>(bytes, num_bytes / 4, out); }
                        });
}

void TokenShardReader::read_loss_mask(std::int64_t begin, std::int64_t num, std::uint8_t* mask) const
{
    EXPECT(begin >= 0 && num >= 0 && begin + num <= impl_->info.num_tokens);
    if (!impl_->loss_mask)
    {
        std::fill(mask, mask + num, std::uint8_t{1});
        return;
    }
    impl_->loss_mask->read(impl_->file, begin, begin + num,
                           [&](const char* bytes, std::int64_t num_bytes, std::int64_t at)
                           { std::memcpy(mask + (at - begin), bytes, static_cast<std::size_t>(num_bytes)); });
}

void TokenShardReader::read_document_ends(std::int64_t first, std::int64_t num, std::uint64_t* ends) const
{
    EXPECT(first >= 0 && num >= 0 && first + num <= impl_->info.num_documents);
    impl_->ends->read(impl_->file, first * 8, (first + num) * 8,
                      [&](const char* bytes, std::int64_t num_bytes, std::int64_t at)
                      { std::memcpy(reinterpret_cast<char*>(ends) + (at - first * 8), bytes, static_cast<std::size_t>(num_bytes)); });
}

std::vector<std::uint64_t> TokenShardReader::document_ends() const { return impl_->read_u64(*impl_->ends); }
std::vector<std::uint64_t> TokenShardReader::document_text_bytes() const { return impl_->read_u64(*impl_->text_bytes); }

void TokenShardReader::verify(const std::function<void(std::int64_t)>& on_bytes) const
{
    const Impl& in = *impl_;
    constexpr std::int64_t step = 1 << 18;
    std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(step, in.info.num_tokens)));
    std::vector<std::uint8_t> mask(in.info.has_loss_mask ? ids.size() : 0);
    for (std::int64_t begin = 0; begin < in.info.num_tokens; begin += step)
    {
        const std::int64_t num = std::min(step, in.info.num_tokens - begin);
        read(begin, num, ids.data());
        for (std::int64_t i = 0; i < num; ++i)
        {
            VALIDATE(ids[i] < in.info.vocab, FormatError, "{}: token {} is {}, not below the vocabulary of {}",
                     in.info.path, begin + i, ids[i], in.info.vocab);
        }
        if (in.info.has_loss_mask) { read_loss_mask(begin, num, mask.data()); }
        if (on_bytes) { on_bytes(num * dtype_bytes(in.info.dtype)); }
    }
    in.verify_total(*in.tokens, format::tokens);
    in.verify_total(*in.ends, format::document_ends);
    in.verify_total(*in.text_bytes, format::document_text_bytes);
    if (in.info.has_loss_mask) { in.verify_total(*in.loss_mask, format::loss_mask); }
    in.verify_documents();
}

std::uint32_t TokenShardReader::skeleton_crc() const
{
    std::vector<std::pair<std::int64_t, std::int64_t>> held;
    for (const auto* range : {&impl_->tokens, &impl_->loss_mask, &impl_->ends, &impl_->text_bytes})
    {
        if (*range && (*range)->bytes() > 0) { held.push_back((*range)->place()); }
    }
    return crc32c_outside(impl_->file.path(), std::move(held));
}

}  // namespace plimsoll
