#include <algorithm>
#include <exception>

#include "base/error.hpp"
#include "base/output_folder.hpp"
#include "io/token_formats/mds.hpp"

namespace plimsoll
{

namespace
{

std::string mds_hidden_name(const std::string& directory)
{
    const std::size_t slash = directory.rfind('/');
    return parent_of(directory) + "/." + directory.substr(slash == std::string::npos ? 0 : slash + 1) + ".partial";
}

std::string mds_trimmed(std::string path)
{
    while (path.size() > 1 && path.back() == '/') { path.pop_back(); }
    return path;
}

/// One dimension in the narrowest of u8, u16, u32; the byte before it holds the number of dimensions and that width.
void append_shape(std::vector<char>& out, std::uint64_t num)
{
    const int code = num < (1u << 8) ? 0 : num < (1u << 16) ? 1 : 2;
    out.push_back(static_cast<char>((1 << 2) | code));
    for (int byte = 0; byte < (1 << code); ++byte) { out.push_back(static_cast<char>((num >> (8 * byte)) & 0xff)); }
}

std::size_t shape_bytes(std::uint64_t num) { return num < (1u << 8) ? 2 : num < (1u << 16) ? 3 : 5; }

}  // namespace

MdsWriter::MdsWriter(std::string directory, std::int64_t vocab, bool with_loss_mask, std::int64_t size_limit)
    : directory_(mds_trimmed(std::move(directory))),
      hidden_(mds_hidden_name(directory_)),
      vocab_(vocab),
      width_(vocab <= 65536 ? 2 : 4),
      with_loss_mask_(with_loss_mask),
      size_limit_(size_limit),
      shard_config_(config(false))
{
    EXPECT(vocab > 0 && size_limit > 0 && size_limit <= 0xffffffffll);
    require_writable(parent_of(directory_), "choose another --out");
    VALIDATE(!path_exists(directory_), UsageError, "'{}' exists. choose another --out or remove it", directory_);
    remove_tree(hidden_);
    make_directories(hidden_);
}

MdsWriter::~MdsWriter()
{
    if (finished_) { return; }
    samples_.reset();
    try
    {
        remove_tree(hidden_);
    }
    catch (const std::exception&)
    {
        // What stays is hidden, and the next run clears it.
    }
}

/// As Python's json.dumps(..., sort_keys=True) writes it; in the index without the braces, for more keys to follow.
std::string MdsWriter::config(bool in_index) const
{
    const std::string tokens = fmt::format("\"ndarray:uint{}\"", 8 * width_);
    std::string text =
        with_loss_mask_
            ? fmt::format(R"("column_encodings": ["ndarray:uint8", {}], "column_names": ["loss_mask", "tokens"], )"
                          R"("column_sizes": [null, null], )",
                          tokens)
            : fmt::format(R"("column_encodings": [{}], "column_names": ["tokens"], "column_sizes": [null], )", tokens);
    text += fmt::format(R"("compression": null, "format": "mds", "hashes": [], )");
    if (in_index) { return text; }
    return "{" + text + fmt::format(R"("size_limit": {}, "version": 2)", size_limit_) + "}";
}

void MdsWriter::add(const TokenDocument& document)
{
    check_ids(document.ids, vocab_, num_documents_);
    VALIDATE(!document.ids.empty(), FormatError, "document {} is empty, which MDS cannot hold", num_documents_);
    const auto num = static_cast<std::uint64_t>(document.ids.size());
    const std::uint64_t tokens_bytes = shape_bytes(num) + num * static_cast<std::uint64_t>(width_);
    const std::uint64_t mask_bytes = with_loss_mask_ ? shape_bytes(num) + num : 0;
    const std::uint64_t sample_bytes = tokens_bytes + mask_bytes + (with_loss_mask_ ? 8 : 4);
    const std::uint64_t head = 8 + shard_config_.size();
    const auto end_with = [&]
    { return head + 4 * (ends_.size() + 1) + (ends_.empty() ? 0 : ends_.back()) + sample_bytes; };
    if (!ends_.empty() && end_with() > static_cast<std::uint64_t>(size_limit_)) { write_shard(); }
    VALIDATE(end_with() <= 0xffffffffull, FormatError, "document {} has {} tokens (a shard of MDS holds 4 GiB at most)",
             num_documents_, num);
    if (!samples_) { samples_ = std::make_unique<AppendFile>(hidden_ + "/samples", AppendFile::Kind::spill); }
    std::vector<char> shape;
    append_shape(shape, num);
    if (with_loss_mask_)
    {
        const auto size = static_cast<std::uint32_t>(mask_bytes);
        samples_->append(&size, 4);
    }
    const auto size = static_cast<std::uint32_t>(tokens_bytes);
    samples_->append(&size, 4);
    if (with_loss_mask_)
    {
        const std::vector<std::uint8_t> all(document.mask.empty() ? document.ids.size() : 0, 1);
        samples_->append(shape.data(), static_cast<std::int64_t>(shape.size()));
        samples_->append((document.mask.empty() ? all : document.mask).data(), static_cast<std::int64_t>(num));
    }
    samples_->append(shape.data(), static_cast<std::int64_t>(shape.size()));
    samples_->append_ids(document.ids.data(), static_cast<std::int64_t>(num), width_);
    ends_.push_back(static_cast<std::uint64_t>(samples_->bytes()));
    ++num_documents_;
}

void MdsWriter::write_shard()
{
    const std::string name = fmt::format("shard.{:05}.mds", num_shards_);
    AppendFile shard(hidden_ + "/" + name);
    const auto samples = static_cast<std::uint32_t>(ends_.size());
    shard.append(&samples, 4);
    const std::uint64_t first = 4 + 4 * (ends_.size() + 1) + shard_config_.size();
    const auto begin = static_cast<std::uint32_t>(first);
    shard.append(&begin, 4);
    for (const std::uint64_t end : ends_)
    {
        const auto offset = static_cast<std::uint32_t>(first + end);
        shard.append(&offset, 4);
    }
    shard.append(shard_config_.data(), static_cast<std::int64_t>(shard_config_.size()));
    shard.append_all(*samples_);
    index_rows_ += fmt::format(R"({}{{{}"raw_data": {{"basename": "{}", "bytes": {}, "hashes": {{}}}}, "samples": {}, )"
                               R"("size_limit": {}, "version": 2, "zip_data": null}})",
                               num_shards_ == 0 ? "" : ", ", config(true), name, shard.bytes(), samples, size_limit_);
    shard.publish();
    samples_.reset();
    ends_.clear();
    ++num_shards_;
}

void MdsWriter::finish()
{
    if (!ends_.empty()) { write_shard(); }
    write_file(hidden_ + "/index.json", fmt::format(R"({{"shards": [{}], "version": 2}})", index_rows_));
    sync_directory(hidden_);
    rename_path(hidden_, directory_);
    sync_directory(parent_of(directory_));
    finished_ = true;
}

}  // namespace plimsoll
