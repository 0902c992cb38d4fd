#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
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

/// One dataset on its way: blocks get their CRC and go to a file, from where finish() moves them on. Unless it is to be
/// kept the file has no name from the start, so that a killed process leaves none behind.
class Column
{
  public:
    Column(const std::string& path, Dtype dtype, SpillFiles spill) : dtype_(dtype), spill_(path, File::Mode::create)
    {
        if (spill == SpillFiles::unnamed) { ::unlink(path.c_str()); }
        block_.reserve(format::block_bytes);
    }

    /// Takes up the first `bytes` bytes of a kept file.
    Column(const std::string& path, Dtype dtype, std::int64_t bytes, std::uint32_t crc)
        : dtype_(dtype),
          spill_(path, File::Mode::read_write)
    {
        std::vector<char> piece(format::block_bytes);
        block_.reserve(format::block_bytes);
        for (std::int64_t done = 0; done < bytes;)
        {
            const std::int64_t part = std::min(bytes - done, format::block_bytes);
            spill_.read_at(piece.data(), part, done);
            block_.assign(piece.begin(), piece.begin() + part);
            if (part == format::block_bytes) { account_block(); }
            done += part;
        }
        VALIDATE(crc_so_far() == crc, FormatError, "{}: is not what it was (crc32c {:08x}, not {:08x})", path,
                 crc_so_far(), crc);
    }

    /// Brings the last block into the file as far as it goes; it is written again when it is full.
    void persist(TokenShardWriter::Durable durable)
    {
        if (!block_.empty()) { spill_.write_at(block_.data(), static_cast<std::int64_t>(block_.size()), spilled_); }
        if (durable == TokenShardWriter::Durable::yes) { spill_.sync(); }
    }

    std::uint32_t crc_so_far() const
    {
        const auto bytes = static_cast<std::int64_t>(block_.size());
        if (bytes == 0) { return total_crc_; }
        const std::uint32_t crc = crc32c(block_.data(), bytes);
        return crcs_.empty() ? crc : crc32c_combine(total_crc_, crc, bytes);
    }

    void append(const void* data, std::int64_t bytes)
    {
        const char* from = static_cast<const char*>(data);
        while (bytes > 0)
        {
            const std::int64_t taken = std::min(bytes, format::block_bytes - static_cast<std::int64_t>(block_.size()));
            block_.insert(block_.end(), from, from + taken);
            from += taken;
            bytes -= taken;
            if (static_cast<std::int64_t>(block_.size()) == format::block_bytes) { flush(); }
        }
    }

    void flush()
    {
        if (block_.empty()) { return; }
        spill_.write_at(block_.data(), static_cast<std::int64_t>(block_.size()), spilled_);
        account_block();
    }

    std::int64_t num_elements() const
    {
        return (spilled_ + static_cast<std::int64_t>(block_.size())) / dtype_bytes(dtype_);
    }
    Dtype dtype() const { return dtype_; }
    const std::vector<std::uint32_t>& crcs() const { return crcs_; }
    std::uint32_t total_crc() const { return total_crc_; }

    /// `direct` is the same file without the page cache, or null: a disk may take ten times as much that way, and
    /// what is written is not read again soon.
    void move_to(File& file, File* direct, std::int64_t offset) const
    {
        constexpr std::int64_t piece = 4 << 20;
        const bool aligned = direct != nullptr && offset % File::direct_alignment == 0;
        const std::int64_t direct_bytes = aligned ? spilled_ / File::direct_alignment * File::direct_alignment : 0;
        const std::int64_t size =
            std::min(piece, (spilled_ + File::direct_alignment - 1) / File::direct_alignment * File::direct_alignment);
        const std::unique_ptr<char, decltype(&std::free)>
            buffer(static_cast<char*>(std::aligned_alloc(File::direct_alignment, static_cast<std::size_t>(size))),
                   &std::free);
        if (!buffer) { throw std::bad_alloc(); }
        for (std::int64_t done = 0; done < spilled_;)
        {
            const std::int64_t end = done < direct_bytes ? direct_bytes : spilled_;
            const std::int64_t bytes = std::min(size, end - done);
            spill_.read_at(buffer.get(), bytes, done);
            (done < direct_bytes ? *direct : file).write_at(buffer.get(), bytes, offset + done);
            done += bytes;
        }
    }

  private:
    void account_block()
    {
        const auto bytes = static_cast<std::int64_t>(block_.size());
        const std::uint32_t crc = crc32c(block_.data(), bytes);
        total_crc_ = crcs_.empty() ? crc : crc32c_combine(total_crc_, crc, bytes);
        crcs_.push_back(crc);
        spilled_ += bytes;
        block_.clear();
    }

    Dtype dtype_;
    File spill_;
    std::vector<char> block_;
    std::int64_t spilled_ = 0;
    std::vector<std::uint32_t> crcs_;
    std::uint32_t total_crc_ = 0;
};

/// Nothing where the file system has no direct writing.
std::optional<File> open_direct(const std::string& path)
{
    try
    {
        return File(path, File::Mode::read_write, File::Caching::direct);
    }
    catch (const IoError&)
    {
        return std::nullopt;
    }
}

struct NamedColumn
{
    Column* column;
    const char* data;
    const char* crc;
    std::int64_t offset;
};

std::uint32_t skeleton_crc_of(const std::string& path, const std::vector<NamedColumn>& columns)
{
    std::vector<std::pair<std::int64_t, std::int64_t>> held;
    for (const NamedColumn& entry : columns)
    {
        const std::int64_t bytes = entry.column->num_elements() * dtype_bytes(entry.column->dtype());
        if (bytes > 0) { held.emplace_back(entry.offset, entry.offset + bytes); }
    }
    return crc32c_outside(path, std::move(held));
}

}  // namespace

constexpr const char* tokens_spill = ".tokens.tmp";
constexpr const char* ends_spill = ".ends.tmp";
constexpr const char* text_bytes_spill = ".text_bytes.tmp";
constexpr const char* loss_mask_spill = ".loss_mask.tmp";

struct TokenShardWriter::Impl
{
    std::string path;
    std::string temporary;
    std::int64_t vocab = 0;
    std::string tokenizer;
    std::string fingerprint;
    std::int64_t text_bytes = 0;
    std::uint64_t end = 0;
    bool finished = false;
    Column tokens;
    Column ends;
    Column text_bytes_column;
    std::unique_ptr<Column> loss_mask;
    std::vector<std::uint16_t> narrow;

    Impl(std::string shard_path, std::int64_t vocab_size, SpillFiles spill)
        : path(std::move(shard_path)),
          temporary(path + ".tmp"),
          vocab(vocab_size),
          tokens(path + tokens_spill, format::token_dtype(vocab_size), spill),
          ends(path + ends_spill, Dtype::u64, spill),
          text_bytes_column(path + text_bytes_spill, Dtype::u64, spill)
    {
    }

    Impl(std::string shard_path, std::int64_t vocab_size, const TokenShardProgress& from)
        : path(std::move(shard_path)),
          temporary(path + ".tmp"),
          vocab(vocab_size),
          text_bytes(from.text_bytes),
          end(static_cast<std::uint64_t>(from.num_tokens)),
          tokens(path + tokens_spill, format::token_dtype(vocab_size),
                 from.num_tokens * dtype_bytes(format::token_dtype(vocab_size)), from.tokens_crc),
          ends(path + ends_spill, Dtype::u64, from.num_documents * 8, from.ends_crc),
          text_bytes_column(path + text_bytes_spill, Dtype::u64, from.num_documents * 8, from.text_bytes_crc)
    {
    }

    void check_ids(const std::uint32_t* ids, std::int64_t num) const
    {
        const std::uint32_t* largest = ids;
        std::uint32_t highest = 0;
        for (std::int64_t i = 0; i < num; ++i) { highest = std::max(highest, ids[i]); }
        if (highest < vocab) { return; }
        largest = std::max_element(ids, ids + num);
        throw FormatError(
            fmt::format("token id {} at position {} of document {} is not below the vocabulary of {} (tokenizer '{}')",
                        *largest, largest - ids, ends.num_elements(), vocab, tokenizer));
    }

    void append_ids(const std::uint32_t* ids, std::int64_t num)
    {
        if (tokens.dtype() == Dtype::u32)
        {
            tokens.append(ids, num * 4);
            return;
        }
        constexpr std::int64_t step = 32768;
        narrow.resize(static_cast<std::size_t>(std::min(num, step)));
        for (std::int64_t done = 0; done < num; done += step)
        {
            const std::int64_t count = std::min(step, num - done);
            for (std::int64_t i = 0; i < count; ++i) { narrow[i] = static_cast<std::uint16_t>(ids[done + i]); }
            tokens.append(narrow.data(), count * 2);
        }
    }

    std::vector<NamedColumn> columns()
    {
        std::vector<NamedColumn> all = {{&tokens, format::tokens, format::tokens_crc, 0},
                                        {&ends, format::document_ends, format::document_ends_crc, 0},
                                        {&text_bytes_column, format::document_text_bytes,
                                         format::document_text_bytes_crc, 0}};
        if (loss_mask) { all.push_back({loss_mask.get(), format::loss_mask, format::loss_mask_crc, 0}); }
        return all;
    }

    /// The HDF5 file with everything but the bytes of the columns, whose offsets it fills in.
    void create_file(std::vector<NamedColumn>& all)
    {
        H5File file = H5File::create(temporary);
        H5Group root = file.root();
        root.set_attribute("format", format::format);
        root.set_attribute("format_version", std::vector<std::uint64_t>{format::version_major, format::version_minor});
        root.set_attribute("required_features", loss_mask ? std::string(format::feature_loss_mask) : std::string());
        root.set_attribute("tokenizer", tokenizer);
        root.set_attribute("tokenizer_sha256", fingerprint);
        root.set_attribute("vocab", vocab);
        root.set_attribute("text_bytes", text_bytes);
        root.set_attribute("complete", std::uint8_t{0});
        // Groups made on the way by the library would carry the time.
        file.create_group(format::document_group);
        file.create_group(format::crc_group).set_attribute("block_bytes", format::block_bytes);
        for (NamedColumn& entry : all)
        {
            H5Dataset data = file.create_dataset(entry.data, entry.column->dtype(), {entry.column->num_elements()});
            data.set_attribute("crc32c", static_cast<std::uint64_t>(entry.column->total_crc()));
            entry.offset = data.file_offset();
            const auto& crcs = entry.column->crcs();
            file.create_dataset(entry.crc, Dtype::u32, {static_cast<std::int64_t>(crcs.size())}).write(crcs.data());
        }
        file.close();
    }
};

TokenShardWriter::TokenShardWriter(std::string path, std::int64_t vocab, std::string tokenizer, std::string fingerprint,
                                   bool with_loss_mask, SpillFiles spill)
{
    EXPECT(vocab > 0 && vocab <= (1ll << 32));
    impl_ = std::make_unique<Impl>(std::move(path), vocab, spill);
    impl_->tokenizer = std::move(tokenizer);
    impl_->fingerprint = std::move(fingerprint);
    if (with_loss_mask)
    {
        impl_->loss_mask = std::make_unique<Column>(impl_->path + loss_mask_spill, Dtype::u8, spill);
    }
}

TokenShardWriter::TokenShardWriter(std::string path, std::int64_t vocab, std::string tokenizer, std::string fingerprint,
                                   bool with_loss_mask, const TokenShardProgress& from)
{
    EXPECT(vocab > 0 && vocab <= (1ll << 32));
    impl_ = std::make_unique<Impl>(std::move(path), vocab, from);
    impl_->tokenizer = std::move(tokenizer);
    impl_->fingerprint = std::move(fingerprint);
    if (with_loss_mask)
    {
        impl_->loss_mask =
            std::make_unique<Column>(impl_->path + loss_mask_spill, Dtype::u8, from.num_tokens, from.loss_mask_crc);
    }
}

TokenShardProgress TokenShardWriter::persist(Durable durable)
{
    TokenShardProgress progress;
    progress.num_tokens = num_tokens();
    progress.num_documents = num_documents();
    progress.text_bytes = impl_->text_bytes;
    progress.tokens_crc = impl_->tokens.crc_so_far();
    progress.ends_crc = impl_->ends.crc_so_far();
    progress.text_bytes_crc = impl_->text_bytes_column.crc_so_far();
    for (Column* column : {&impl_->tokens, &impl_->ends, &impl_->text_bytes_column}) { column->persist(durable); }
    if (impl_->loss_mask)
    {
        progress.loss_mask_crc = impl_->loss_mask->crc_so_far();
        impl_->loss_mask->persist(durable);
    }
    return progress;
}

void TokenShardWriter::remove_spill_files(const std::string& path)
{
    for (const char* end : {tokens_spill, ends_spill, text_bytes_spill, loss_mask_spill})
    {
        ::unlink((path + end).c_str());
    }
}

TokenShardWriter::~TokenShardWriter()
{
    if (impl_ && !impl_->finished) { ::unlink(impl_->temporary.c_str()); }
}

void TokenShardWriter::add_document(const std::uint32_t* tokens, std::int64_t num_tokens, std::int64_t text_bytes,
                                    const std::uint8_t* loss_mask)
{
    EXPECT(num_tokens > 0 && text_bytes >= 0);
    EXPECT((loss_mask != nullptr) == (impl_->loss_mask != nullptr));
    impl_->check_ids(tokens, num_tokens);
    impl_->append_ids(tokens, num_tokens);
    if (loss_mask != nullptr) { impl_->loss_mask->append(loss_mask, num_tokens); }
    impl_->end += static_cast<std::uint64_t>(num_tokens);
    impl_->ends.append(&impl_->end, 8);
    const auto bytes = static_cast<std::uint64_t>(text_bytes);
    impl_->text_bytes_column.append(&bytes, 8);
    impl_->text_bytes += text_bytes;
}

std::int64_t TokenShardWriter::num_tokens() const { return static_cast<std::int64_t>(impl_->end); }
std::int64_t TokenShardWriter::num_documents() const { return impl_->ends.num_elements(); }

TokenShardInfo TokenShardWriter::finish()
{
    Impl& in = *impl_;
    EXPECT(!in.finished && num_documents() > 0);
    std::vector<NamedColumn> all = in.columns();
    for (NamedColumn& entry : all) { entry.column->flush(); }
    std::uint32_t skeleton_crc = 0;
    with_context(fmt::format("while writing '{}'", in.path),
                 [&]
                 {
                     crash_point("token_shard_create");
                     in.create_file(all);
                     {
                         File file(in.temporary, File::Mode::read_write);
                         file.reserve(file.size());
                         std::optional<File> direct = open_direct(in.temporary);
                         for (const NamedColumn& entry : all)
                         {
                             entry.column->move_to(file, direct ? &*direct : nullptr, entry.offset);
                         }
                         crash_point("token_shard_sync");
                         file.sync();
                         file.close();
                     }
                     H5File file = H5File::open(in.temporary, H5File::Access::read_write);
                     file.root().set_attribute("complete", std::uint8_t{1});
                     file.close();
                     skeleton_crc = skeleton_crc_of(in.temporary, all);
                     File(in.temporary, File::Mode::read_write).sync();
                     crash_point("token_shard_rename");
                     rename_path(in.temporary, in.path);
                     sync_directory(parent_of(in.path));
                 });
    in.finished = true;

    TokenShardInfo info;
    info.path = in.path;
    info.dtype = in.tokens.dtype();
    info.num_tokens = num_tokens();
    info.num_documents = num_documents();
    info.text_bytes = in.text_bytes;
    info.vocab = in.vocab;
    info.tokenizer = in.tokenizer;
    info.fingerprint = in.fingerprint;
    info.tokens_crc = in.tokens.total_crc();
    info.has_loss_mask = in.loss_mask != nullptr;
    info.loss_mask_crc = in.loss_mask ? in.loss_mask->total_crc() : 0;
    info.file_bytes = file_size(in.path);
    info.skeleton_crc = skeleton_crc;
    return info;
}

}  // namespace plimsoll
