#include "io/token_formats/datatrove.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

constexpr std::int64_t datatrove_step = 1 << 16;

std::uint64_t last_end_of(const File& index, std::int64_t num_documents)
{
    std::uint64_t last = 0;
    if (num_documents > 0) { index.read_at(&last, 8, 8 * (num_documents - 1)); }
    return last;
}

}  // namespace

DatatroveReader::DatatroveReader(const std::string& path)
    : tokens_(path, File::Mode::read),
      index_(path + ".index", File::Mode::read)
{
    const std::int64_t bytes = tokens_.size();
    const std::int64_t index_bytes = index_.size();
    VALIDATE(index_bytes % 8 == 0, FormatError, "{}: {} bytes are no whole number of document ends (8 bytes each)",
             index_.path(), index_bytes);
    num_documents_ = index_bytes / 8;
    const std::uint64_t last = last_end_of(index_, num_documents_);
    // Nothing in the file says how wide a token is but this.
    const bool narrow = last <= (1ull << 62) && static_cast<std::uint64_t>(bytes) == 2 * last;
    const bool wide = last <= (1ull << 61) && static_cast<std::uint64_t>(bytes) == 4 * last;
    VALIDATE(narrow || wide, FormatError,
             "{}: {} bytes are neither 2 nor 4 for each of the {} tokens of its index (truncated file?)", path, bytes,
             last);
    dtype_ = narrow ? Dtype::u16 : Dtype::u32;
    num_tokens_ = static_cast<std::int64_t>(last);
    file_bytes_ = bytes + index_bytes;
    if (path_exists(path + ".loss"))
    {
        loss_.emplace(path + ".loss", File::Mode::read);
        VALIDATE(loss_->size() == num_tokens_, FormatError, "{}: {} bytes for {} tokens", loss_->path(), loss_->size(),
                 num_tokens_);
        file_bytes_ += num_tokens_;
    }
    if (path_exists(path + ".metadata")) { read_metadata(); }
}

void DatatroveReader::read_metadata()
{
    const std::string path = tokens_.path() + ".metadata";
    const std::string text = read_text_file(path);
    file_bytes_ += static_cast<std::int64_t>(text.size());
    const std::size_t first = text.find('\n');
    const std::size_t second = first == std::string::npos ? first : text.find('\n', first + 1);
    const std::string count = first == std::string::npos ? "" : text.substr(first + 1, second - first - 1);
    VALIDATE(count == fmt::format("{}", num_tokens_), FormatError, "{}: says '{}' tokens, the index has {}", path,
             count, num_tokens_);
    tokenizer_ = text.substr(0, first);
    const std::size_t bar = tokenizer_.rfind('|');
    // Older writers name no size.
    if (bar == std::string::npos) { return; }
    const std::string size = tokenizer_.substr(bar + 1);
    tokenizer_.resize(bar);
    VALIDATE(num_tokens_ == 0 || size == fmt::format("{}", dtype_bytes(dtype_)), FormatError,
             "{}: says '{}' bytes for a token, the size of the file {}", path, size, dtype_bytes(dtype_));
}

void DatatroveReader::read(std::int64_t begin, std::int64_t num, std::uint32_t* tokens) const
{
    EXPECT(begin >= 0 && num >= 0 && begin + num <= num_tokens_);
    if (dtype_ == Dtype::u32)
    {
        tokens_.read_at(tokens, num * 4, begin * 4);
        return;
    }
    std::vector<std::uint16_t> narrow(static_cast<std::size_t>(std::min(num, datatrove_step)));
    for (std::int64_t done = 0; done < num;)
    {
        const std::int64_t count = std::min(static_cast<std::int64_t>(narrow.size()), num - done);
        tokens_.read_at(narrow.data(), count * 2, (begin + done) * 2);
        std::copy(narrow.begin(), narrow.begin() + count, tokens + done);
        done += count;
    }
}

void DatatroveReader::read_loss_mask(std::int64_t begin, std::int64_t num, std::uint8_t* mask) const
{
    if (!loss_)
    {
        std::fill(mask, mask + num, std::uint8_t{1});
        return;
    }
    loss_->read_at(mask, num, begin);
    const std::uint8_t* odd = std::find_if(mask, mask + num, [](std::uint8_t value) { return value > 1; });
    VALIDATE(odd == mask + num, FormatError, "{}: entry {} is {}, not 0 or 1", loss_->path(), begin + (odd - mask),
             *odd);
}

void DatatroveReader::read_document_ends(std::int64_t first, std::int64_t num, std::uint64_t* ends) const
{
    EXPECT(first >= 0 && num >= 0 && first + num <= num_documents_);
    index_.read_at(ends, num * 8, first * 8);
    std::uint64_t previous = first == 0 ? 0 : last_end_of(index_, first);
    for (std::int64_t i = 0; i < num; ++i)
    {
        VALIDATE(ends[i] >= previous && ends[i] <= static_cast<std::uint64_t>(num_tokens_), FormatError,
                 "{}: document {} ends at token {} (the one before at {}, there are {})", index_.path(), first + i,
                 ends[i], previous, num_tokens_);
        previous = ends[i];
    }
}

DatatroveDocuments::DatatroveDocuments(const std::vector<std::string>& paths)
{
    files_.reserve(paths.size());
    for (const std::string& path : paths)
    {
        files_.emplace_back(path);
        has_loss_mask_ = has_loss_mask_ || files_.back().has_loss_mask();
        total_bytes_ += files_.back().num_tokens() * dtype_bytes(files_.back().dtype());
    }
}

bool DatatroveDocuments::next(TokenDocument& document)
{
    while (file_ < files_.size() && document_ == files_[file_].num_documents())
    {
        ++file_;
        document_ = token_ = window_begin_ = 0;
        ends_.clear();
    }
    if (file_ == files_.size()) { return false; }
    const DatatroveReader& file = files_[file_];
    if (document_ == window_begin_ + static_cast<std::int64_t>(ends_.size()))
    {
        window_begin_ = document_;
        ends_.resize(static_cast<std::size_t>(std::min(datatrove_step, file.num_documents() - document_)));
        file.read_document_ends(document_, static_cast<std::int64_t>(ends_.size()), ends_.data());
    }
    const auto end = static_cast<std::int64_t>(ends_[static_cast<std::size_t>(document_ - window_begin_)]);
    const std::int64_t num = end - token_;
    document.text_bytes = -1;
    document.ids.resize(static_cast<std::size_t>(num));
    file.read(token_, num, document.ids.data());
    document.mask.resize(has_loss_mask_ ? document.ids.size() : 0);
    if (has_loss_mask_) { file.read_loss_mask(token_, num, document.mask.data()); }
    token_ = end;
    bytes_read_ += num * dtype_bytes(file.dtype());
    ++document_;
    return true;
}

std::string datatrove_amount(std::int64_t tokens)
{
    double value = static_cast<double>(tokens);
    int exponent = 0;
    for (std::int64_t rest = tokens; rest >= 10; rest /= 10) { ++exponent; }
    for (int i = 0; i < exponent / 3; ++i) { value /= 1000; }
    const std::string prefixes = "kMGTPE";
    const std::string prefix = exponent < 3 ? "" : prefixes.substr(static_cast<std::size_t>(exponent / 3 - 1), 1);
    return fmt::format("{:.{}f} {}T", value, 2 - exponent % 3, prefix);
}

DatatroveWriter::DatatroveWriter(const std::string& prefix, std::int64_t vocab, std::string tokenizer,
                                 bool with_loss_mask)
    : vocab_(vocab),
      width_(vocab <= 65536 ? 2 : 4),
      tokenizer_(std::move(tokenizer)),
      tokens_(prefix + ".ds"),
      index_(prefix + ".ds.index"),
      metadata_(prefix + ".ds.metadata")
{
    if (with_loss_mask) { loss_ = std::make_unique<AppendFile>(prefix + ".ds.loss"); }
}

void DatatroveWriter::add(const TokenDocument& document)
{
    check_ids(document.ids, vocab_, num_documents_);
    const auto num = static_cast<std::int64_t>(document.ids.size());
    tokens_.append_ids(document.ids.data(), num, width_);
    EXPECT(document.mask.empty() || loss_);
    const std::vector<std::uint8_t> all(loss_ && document.mask.empty() ? document.ids.size() : 0, 1);
    if (loss_) { loss_->append((document.mask.empty() ? all : document.mask).data(), num); }
    end_ += static_cast<std::uint64_t>(num);
    index_.append(&end_, 8);
    ++num_documents_;
}

void DatatroveWriter::finish()
{
    const auto tokens = static_cast<std::int64_t>(end_);
    const std::string text = fmt::format("{}|{}\n{}\n{}", tokenizer_, width_, tokens, datatrove_amount(tokens));
    metadata_.append(text.data(), static_cast<std::int64_t>(text.size()));
    for (AppendFile* file : {&tokens_, &index_, &metadata_, loss_.get()})
    {
        if (file != nullptr) { file->seal(); }
    }
    // The tokens last: readers look for *.ds.
    if (loss_) { loss_->publish(); }
    metadata_.publish();
    index_.publish();
    tokens_.publish();
    sync_directory(parent_of(tokens_.path()));
}

}  // namespace plimsoll
