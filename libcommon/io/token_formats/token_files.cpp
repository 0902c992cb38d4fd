#include "io/token_formats/token_files.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/exit_as.hpp"
#include "base/units.hpp"
#include "io/file.hpp"
#include "io/token_formats/datatrove.hpp"
#include "io/token_formats/llmc.hpp"
#include "io/token_formats/megatron.hpp"

namespace plimsoll
{

namespace
{

bool has_ending(const std::string& path, const std::string& ending)
{
    return path.size() > ending.size() && path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
}

const char* ending_of(TokenFormat format)
{
    switch (format)
    {
        case TokenFormat::megatron: return ".idx";
        case TokenFormat::llmc: return ".bin";
        default: return ".ds";
    }
}

/// Readers of several paths as one.
class ChainedDocuments : public DocumentReader
{
  public:
    explicit ChainedDocuments(std::vector<std::unique_ptr<DocumentReader>> readers) : readers_(std::move(readers)) {}

    bool next(TokenDocument& document) override
    {
        while (at_ < readers_.size() && !readers_[at_]->next(document)) { ++at_; }
        if (at_ == readers_.size()) { return false; }
        if (has_loss_mask() && document.mask.empty()) { document.mask.assign(document.ids.size(), 1); }
        return true;
    }

    bool has_loss_mask() const override
    {
        return std::any_of(readers_.begin(), readers_.end(),
                           [](const auto& reader) { return reader->has_loss_mask(); });
    }

    std::int64_t total_bytes() const override { return sum(&DocumentReader::total_bytes); }
    std::int64_t bytes_read() const override { return sum(&DocumentReader::bytes_read); }

  private:
    std::int64_t sum(std::int64_t (DocumentReader::*what)() const) const
    {
        std::int64_t bytes = 0;
        for (const auto& reader : readers_) { bytes += (reader.get()->*what)(); }
        return bytes;
    }

    std::vector<std::unique_ptr<DocumentReader>> readers_;
    std::size_t at_ = 0;
};

void describe_megatron(const std::string& path, TokenFilesInfo& info)
{
    const MegatronReader reader(path);
    info.dtype = dtype_name(reader.dtype());
    info.num_tokens += reader.num_tokens();
    info.num_documents += reader.num_documents();
    info.file_bytes += reader.file_bytes();
    if (reader.num_sequences() != reader.num_documents())
    {
        info.notes.emplace_back("sequences", format_grouped(reader.num_sequences()));
    }
    if (reader.has_modes()) { info.notes.emplace_back("modes", "there (multimodal), not read"); }
}

void describe_datatrove(const std::string& path, TokenFilesInfo& info)
{
    const DatatroveReader reader(path);
    info.dtype = dtype_name(reader.dtype());
    info.num_tokens += reader.num_tokens();
    info.num_documents += reader.num_documents();
    info.file_bytes += reader.file_bytes();
    info.has_loss_mask = info.has_loss_mask || reader.has_loss_mask();
    if (!reader.tokenizer().empty() && info.notes.empty()) { info.notes.emplace_back("tokenizer", reader.tokenizer()); }
}

void describe_llmc(const std::string& path, TokenFilesInfo& info)
{
    const LlmcReader reader(path);
    info.dtype = dtype_name(reader.dtype());
    info.num_tokens += reader.num_tokens();
    info.file_bytes += reader.file_bytes();
}

/// Whether the disk gives all of it is all that there is to check.
void read_llmc(const std::vector<std::string>& paths, const std::function<void(std::int64_t)>& on_bytes)
{
    constexpr std::int64_t step = 1 << 18;
    std::vector<std::uint32_t> tokens(step);
    for (const std::string& path : paths)
    {
        const LlmcReader reader(path);
        for (std::int64_t begin = 0; begin < reader.num_tokens(); begin += step)
        {
            const std::int64_t num = std::min(step, reader.num_tokens() - begin);
            reader.read(begin, num, tokens.data());
            if (on_bytes) { on_bytes(num * dtype_bytes(reader.dtype())); }
        }
    }
}

std::unique_ptr<DocumentReader> open_all(TokenFormat format, const std::vector<std::string>& all,
                                         const TokenReadOptions& options)
{
    if (format == TokenFormat::llmc) { return std::make_unique<LlmcDocuments>(all, options.eod); }
    if (format == TokenFormat::datatrove) { return std::make_unique<DatatroveDocuments>(all); }
    std::vector<std::unique_ptr<DocumentReader>> readers;
    for (const std::string& path : all)
    {
        if (format == TokenFormat::mds) { readers.push_back(std::make_unique<MdsDocuments>(path, options.mds)); }
        else { readers.push_back(std::make_unique<MegatronDocuments>(path)); }
    }
    return std::make_unique<ChainedDocuments>(std::move(readers));
}

}  // namespace

const char* token_format_name(TokenFormat format)
{
    switch (format)
    {
        case TokenFormat::megatron: return "megatron";
        case TokenFormat::llmc: return "llmc";
        case TokenFormat::datatrove: return "ds";
        default: return "mds";
    }
}

TokenFormat parse_token_format(const std::string& name)
{
    for (const TokenFormat format :
         {TokenFormat::megatron, TokenFormat::llmc, TokenFormat::datatrove, TokenFormat::mds})
    {
        if (name == token_format_name(format)) { return format; }
    }
    throw UsageError(fmt::format("unknown token format '{}'. known: megatron llmc ds mds", name));
}

std::optional<TokenFormat> token_format_of(const std::string& path)
{
    if (is_directory(path))
    {
        if (path_exists(path + "/index.json")) { return TokenFormat::mds; }
        return std::nullopt;
    }
    if (has_ending(path, ".ds")) { return TokenFormat::datatrove; }
    if (has_ending(path, ".idx")) { return TokenFormat::megatron; }
    if (has_ending(path, ".bin"))
    {
        const bool pair = path_exists(path.substr(0, path.size() - 4) + ".idx");
        return pair ? TokenFormat::megatron : TokenFormat::llmc;
    }
    if (path_exists(path + ".idx") && path_exists(path + ".bin")) { return TokenFormat::megatron; }
    return std::nullopt;
}

std::vector<std::string> token_paths(TokenFormat format, const std::string& path)
{
    if (format == TokenFormat::mds || !is_directory(path)) { return {path}; }
    std::vector<std::string> paths;
    for (const std::string& name : list_directory(path))
    {
        if (has_ending(name, ending_of(format))) { paths.push_back(path + "/" + name); }
    }
    VALIDATE(!paths.empty(), UsageError, "no file in '{}' ends in {}", path, ending_of(format));
    return paths;
}

std::unique_ptr<DocumentReader> open_token_files(TokenFormat format, const std::vector<std::string>& paths,
                                                 const TokenReadOptions& options)
{
    std::vector<std::string> all;
    for (const std::string& path : paths)
    {
        for (std::string& found : token_paths(format, path)) { all.push_back(std::move(found)); }
    }
    return exit_as<IoError>(ExitCode::usage, [&] { return open_all(format, all, options); });
}

namespace
{

TokenFilesInfo describe_files(TokenFormat format, const std::string& path)
{
    TokenFilesInfo info;
    info.format = format;
    if (format == TokenFormat::mds)
    {
        // A column in the encoding `bytes` can be looked at, whatever its width.
        const MdsDocuments reader(path, {"tokens", 8});
        info.dtype = reader.encoding();
        info.num_files = reader.num_shards();
        info.num_documents = reader.num_documents();
        info.file_bytes = reader.total_bytes();
        info.has_loss_mask = reader.has_loss_mask();
        return info;
    }
    info.num_tokens = 0;
    info.num_documents = format == TokenFormat::llmc ? -1 : 0;
    for (const std::string& file : token_paths(format, path))
    {
        switch (format)
        {
            case TokenFormat::megatron: describe_megatron(file, info); break;
            case TokenFormat::datatrove: describe_datatrove(file, info); break;
            default: describe_llmc(file, info); break;
        }
        ++info.num_files;
    }
    return info;
}

}  // namespace

TokenFilesInfo token_files_info(TokenFormat format, const std::string& path)
{
    return exit_as<IoError>(ExitCode::usage, [&] { return describe_files(format, path); });
}

TokenFilesInfo verify_token_files(TokenFormat format, const std::string& path,
                                  const std::function<void(std::int64_t)>& on_bytes)
{
    TokenFilesInfo info = token_files_info(format, path);
    if (format == TokenFormat::llmc)
    {
        read_llmc(token_paths(format, path), on_bytes);
        return info;
    }
    const bool any_width = format == TokenFormat::mds && info.dtype == "bytes";
    TokenReadOptions options;
    options.mds.token_bytes = any_width ? 1 : 0;
    const auto reader = open_token_files(format, {path}, options);
    TokenDocument document;
    std::int64_t tokens = 0;
    for (std::int64_t before = 0; reader->next(document);)
    {
        tokens += static_cast<std::int64_t>(document.ids.size());
        if (on_bytes) { on_bytes(reader->bytes_read() - before); }
        before = reader->bytes_read();
    }
    if (format == TokenFormat::mds && !any_width) { info.num_tokens = tokens; }
    return info;
}

}  // namespace plimsoll
