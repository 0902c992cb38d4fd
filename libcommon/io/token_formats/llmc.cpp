#include "io/token_formats/llmc.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

constexpr std::int64_t llmc_header_bytes = 1024;
constexpr std::int32_t llmc_magic_u16 = 20240520, llmc_version_u16 = 1;
constexpr std::int32_t llmc_magic_u32 = 20240801, llmc_version_u32 = 7;
constexpr std::int32_t llmc_magic_evaluation = 20240522;
constexpr std::int32_t llmc_magic_tokenizer = 20240328;
constexpr std::int64_t llmc_window_tokens = 1 << 16;

}  // namespace

LlmcReader::LlmcReader(const std::string& path) : file_(path, File::Mode::read), file_bytes_(file_.size())
{
    std::array<std::int32_t, 256> header{};
    file_.read_at(header.data(), std::min(llmc_header_bytes, file_bytes_), 0);
    VALIDATE(header[0] != llmc_magic_evaluation, FormatError, "{}: questions of an evaluation, no token stream", path);
    VALIDATE(header[0] != llmc_magic_tokenizer, FormatError, "{}: a tokenizer of llm.c's, no token stream", path);
    VALIDATE(header[0] == llmc_magic_u16 || header[0] == llmc_magic_u32, FormatError,
             "{}: not a token file of llm.c's (its first number is {}, not {} or {})", path, header[0], llmc_magic_u16,
             llmc_magic_u32);
    VALIDATE(file_bytes_ >= llmc_header_bytes, FormatError, "{}: truncated file ({} bytes, its header has {})", path,
             file_bytes_, llmc_header_bytes);
    const bool narrow = header[0] == llmc_magic_u16;
    const std::int32_t version = narrow ? llmc_version_u16 : llmc_version_u32;
    VALIDATE(header[1] == version, FormatError, "{}: version {} (this version reads {} with the first number {})", path,
             header[1], version, header[0]);
    dtype_ = narrow ? Dtype::u16 : Dtype::u32;
    num_tokens_ = header[2];
    VALIDATE(num_tokens_ >= 0 && file_bytes_ == llmc_header_bytes + num_tokens_ * dtype_bytes(dtype_), FormatError,
             "{}: {} bytes do not hold the {} {} tokens of its header (truncated file?)", path, file_bytes_,
             num_tokens_, dtype_name(dtype_));
}

void LlmcReader::read(std::int64_t begin, std::int64_t num, std::uint32_t* tokens) const
{
    EXPECT(begin >= 0 && num >= 0 && begin + num <= num_tokens_);
    const std::int64_t width = dtype_bytes(dtype_);
    if (width == 4)
    {
        file_.read_at(tokens, num * 4, llmc_header_bytes + begin * 4);
        return;
    }
    std::vector<std::uint16_t> narrow(static_cast<std::size_t>(std::min(num, llmc_window_tokens)));
    for (std::int64_t done = 0; done < num;)
    {
        const std::int64_t count = std::min(static_cast<std::int64_t>(narrow.size()), num - done);
        file_.read_at(narrow.data(), count * 2, llmc_header_bytes + (begin + done) * 2);
        std::copy(narrow.begin(), narrow.begin() + count, tokens + done);
        done += count;
    }
}

LlmcDocuments::LlmcDocuments(const std::vector<std::string>& paths, std::uint32_t eod, std::int64_t max_document_tokens)
    : eod_(eod),
      max_document_tokens_(max_document_tokens)
{
    files_.reserve(paths.size());
    for (const std::string& path : paths)
    {
        files_.emplace_back(path);
        total_bytes_ += files_.back().num_tokens() * dtype_bytes(files_.back().dtype());
    }
}

bool LlmcDocuments::refill()
{
    while (file_ < files_.size() && token_ == files_[file_].num_tokens())
    {
        ++file_;
        token_ = 0;
    }
    if (file_ == files_.size()) { return false; }
    const LlmcReader& file = files_[file_];
    const std::int64_t num = std::min(llmc_window_tokens, file.num_tokens() - token_);
    window_.resize(static_cast<std::size_t>(num));
    window_begin_ = 0;
    file.read(token_, num, window_.data());
    token_ += num;
    bytes_read_ += num * dtype_bytes(file.dtype());
    return true;
}

bool LlmcDocuments::next(TokenDocument& document)
{
    document.ids.clear();
    document.mask.clear();
    document.text_bytes = -1;
    while (window_begin_ < window_.size() || refill())
    {
        const auto begin = window_.begin() + static_cast<std::ptrdiff_t>(window_begin_);
        const auto end = std::find(begin, window_.end(), eod_);
        document.ids.insert(document.ids.end(), begin, end);
        VALIDATE(static_cast<std::int64_t>(document.ids.size()) <= max_document_tokens_, FormatError,
                 "{}: no end-of-document id {} within {} tokens. is --eod right?", files_[file_].path(), eod_,
                 max_document_tokens_);
        window_begin_ = static_cast<std::size_t>(end - window_.begin());
        if (end == window_.end()) { continue; }
        ++window_begin_;
        // The first id opens the first document; tokens before it are one that began elsewhere.
        const bool complete = inside_ || !document.ids.empty();
        inside_ = true;
        if (!complete) { continue; }
        document.ids.push_back(eod_);
        return true;
    }
    if (!inside_ && document.ids.empty()) { return false; }
    inside_ = false;
    document.ids.push_back(eod_);
    return true;
}

LlmcWriter::LlmcWriter(std::string prefix, std::int64_t vocab, std::uint32_t eod, std::int64_t file_tokens)
    : prefix_(std::move(prefix)),
      vocab_(vocab),
      eod_(eod),
      width_(vocab <= 65536 ? 2 : 4),
      file_tokens_(file_tokens)
{
    EXPECT(vocab > 0 && eod < vocab && file_tokens > 0 && file_tokens <= max_file_tokens);
    start_file();
}

void LlmcWriter::start_file()
{
    files_.push_back(std::make_unique<AppendFile>(fmt::format("{}_{:06}.bin", prefix_, files_.size())));
    const std::array<std::int32_t, 256> header{};
    files_.back()->append(header.data(), llmc_header_bytes);
    in_file_ = 0;
}

void LlmcWriter::seal_file()
{
    const std::array<std::int32_t, 3> head = {width_ == 2 ? llmc_magic_u16 : llmc_magic_u32,
                                              width_ == 2 ? llmc_version_u16 : llmc_version_u32,
                                              static_cast<std::int32_t>(in_file_)};
    files_.back()->patch(head.data(), 12, 0);
    files_.back()->seal();
}

void LlmcWriter::append(const std::uint32_t* ids, std::int64_t num)
{
    while (num > 0)
    {
        if (in_file_ == file_tokens_)
        {
            seal_file();
            start_file();
        }
        const std::int64_t count = std::min(num, file_tokens_ - in_file_);
        files_.back()->append_ids(ids, count, width_);
        in_file_ += count;
        ids += count;
        num -= count;
    }
}

void LlmcWriter::add(const TokenDocument& document)
{
    check_ids(document.ids, vocab_, num_documents_);
    VALIDATE(!document.ids.empty() && document.ids.back() == eod_, FormatError,
             "document {} does not end with the id {}, by which llm.c's files tell documents apart", num_documents_,
             eod_);
    const auto last = document.ids.end() - 1;
    num_ambiguous_ += std::find(document.ids.begin(), last, eod_) == last ? 0 : 1;
    append(&eod_, 1);
    append(document.ids.data(), static_cast<std::int64_t>(document.ids.size()) - 1);
    ++num_documents_;
}

void LlmcWriter::finish()
{
    seal_file();
    for (const auto& file : files_) { file->publish(); }
    sync_directory(parent_of(prefix_));
}

}  // namespace plimsoll
