#include "io/token_formats/convert.hpp"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/output_folder.hpp"
#include "io/file.hpp"
#include "io/token_formats/datatrove.hpp"
#include "io/token_formats/llmc.hpp"
#include "io/token_formats/megatron.hpp"
#include "io/token_formats/shard_set.hpp"
#include "io/token_shard_format.hpp"

namespace plimsoll
{

namespace
{

/// The file or directory that says that an output is there.
std::string target_of(TokenFormat format, const std::string& out)
{
    switch (format)
    {
        case TokenFormat::megatron: return out + ".idx";
        case TokenFormat::llmc: return out + "_000000.bin";
        case TokenFormat::datatrove: return out + ".ds";
        default: return out;
    }
}

void check_target(TokenFormat format, const std::string& out)
{
    const std::string target = target_of(format, out);
    VALIDATE(!path_exists(target), UsageError, "'{}' exists. choose another --out or remove it", target);
    require_writable(parent_of(out), "choose another --out");
    make_directories(parent_of(out));
}

class SetExport
{
  public:
    SetExport(const ExportOptions& options, const CorpusManifest& manifest, const std::string& set, std::string out)
        : documents_(shard_paths_of(manifest, options.directory, set)),
          eod_(manifest.eod)
    {
        report_.set = set;
        report_.out = std::move(out);
        const bool room = options.format == TokenFormat::datatrove || options.format == TokenFormat::mds;
        const bool masked = documents_.has_loss_mask();
        VALIDATE(
            !masked || room || options.loss_mask == ExportOptions::LossMask::drop, ConfigError,
            "'{}' has a loss mask, for which {} has no place. choose --to ds or mds, or --drop-loss-mask to lose it",
            options.directory, token_format_name(options.format));
        keep_mask_ = masked && room && options.loss_mask == ExportOptions::LossMask::keep;
        check_target(options.format, report_.out);
        make_writer(options, manifest);
    }

    std::int64_t total_bytes() const { return documents_.total_bytes(); }
    std::int64_t bytes_read() const { return documents_.bytes_read(); }

    bool step()
    {
        if (!documents_.next(document_)) { return false; }
        if (!keep_mask_) { document_.mask.clear(); }
        writer_->add(document_);
        ++report_.documents;
        report_.tokens += static_cast<std::int64_t>(document_.ids.size());
        return true;
    }

    ExportedSet finish()
    {
        writer_->finish();
        if (llmc_ != nullptr) { report_.ambiguous = llmc_->num_ambiguous(); }
        return report_;
    }

  private:
    void make_writer(const ExportOptions& options, const CorpusManifest& manifest)
    {
        switch (options.format)
        {
            case TokenFormat::megatron: writer_ = std::make_unique<MegatronWriter>(report_.out, manifest.vocab); break;
            case TokenFormat::llmc:
            {
                auto llmc = std::make_unique<LlmcWriter>(report_.out, manifest.vocab, eod_, options.file_tokens);
                llmc_ = llmc.get();
                writer_ = std::move(llmc);
                break;
            }
            case TokenFormat::datatrove:
                writer_ =
                    std::make_unique<DatatroveWriter>(report_.out, manifest.vocab, manifest.tokenizer, keep_mask_);
                break;
            default:
                writer_ = std::make_unique<MdsWriter>(report_.out, manifest.vocab, keep_mask_, options.size_limit);
                break;
        }
    }

    ShardDocuments documents_;
    std::uint32_t eod_;
    bool keep_mask_ = false;
    std::unique_ptr<DocumentWriter> writer_;
    const LlmcWriter* llmc_ = nullptr;
    TokenDocument document_;
    ExportedSet report_;
};

}  // namespace

std::vector<ExportedSet> export_shards(const ExportOptions& options, const ConvertObserver& observer)
{
    const CorpusManifest manifest = read_corpus_manifest(options.directory);
    std::vector<std::unique_ptr<SetExport>> sets;
    std::int64_t total = 0;
    for (const char* set : {"train", "validation"})
    {
        if (shard_paths_of(manifest, options.directory, set).empty()) { continue; }
        const std::string out = options.out + (std::string(set) == "train" ? "" : "_validation");
        sets.push_back(std::make_unique<SetExport>(options, manifest, set, out));
        total += sets.back()->total_bytes();
    }
    std::int64_t before = 0;
    for (const auto& set : sets)
    {
        while (set->step())
        {
            if (observer) { observer(total, before + set->bytes_read()); }
        }
        before += set->total_bytes();
    }
    std::vector<ExportedSet> reports;
    for (const auto& set : sets) { reports.push_back(set->finish()); }
    return reports;
}

namespace
{

class Import
{
  public:
    Import(const ImportOptions& options, const ConvertObserver& observer) : options_(options), observer_(observer)
    {
        const bool both = options.vocab > 0 && options.eod >= 0;
        VALIDATE(!options.tokenizer.empty() || both, ConfigError,
                 "the files do not say which tokenizer they are of. give --tokenizer, or --vocab and --eod");
        if (!options.tokenizer.empty()) { tokenizer_ = make_tokenizer(options.tokenizer); }
        const auto eod = options.eod >= 0 ? static_cast<std::uint32_t>(options.eod) : tokenizer_->eod();
        identity_ = tokenizer_ ? identity_of(*tokenizer_, eod) : unknown_tokenizer(options.vocab, eod);
        if (tokenizer_ && options.vocab > 0) { identity_.vocab = options.vocab; }
        VALIDATE(!tokenizer_ || identity_.vocab >= tokenizer_->vocab(), ConfigError,
                 "--vocab {} is less than the {} ids of tokenizer '{}'", identity_.vocab, tokenizer_->vocab(),
                 identity_.name);
        VALIDATE(identity_.eod < identity_.vocab, ConfigError, "--eod {} is not below the vocabulary of {}",
                 identity_.eod, identity_.vocab);
    }

    ImportReport run()
    {
        TokenReadOptions read;
        read.eod = identity_.eod;
        read.mds = options_.mds;
        const auto documents = open_token_files(options_.format, options_.paths, read);
        CorpusOutput output(options_.out, options_.existing);
        clear_partial(output.directory());
        ShardSetWriter writer("train", output.directory(), "", identity_, options_.shard_tokens,
                              documents->has_loss_mask());
        TokenDocument document;
        while (documents->next(document))
        {
            if (prepare(document)) { writer.add(document); }
            if (observer_) { observer_(documents->total_bytes(), documents->bytes_read()); }
        }
        writer.finish();
        VALIDATE(writer.num_documents() > 0, UsageError, "no documents in the input ({} empty). nothing was written",
                 report_.empty);
        fill(writer, documents->has_loss_mask());
        write_file_atomically(output.directory() + "/" + corpus_manifest_name, manifest_text(report_.manifest));
        output.publish();
        return std::move(report_);
    }

  private:
    /// False when it is not to be written.
    bool prepare(TokenDocument& document)
    {
        check_ids(document.ids, identity_.vocab, number_++);
        const bool ended = !document.ids.empty() && document.ids.back() == identity_.eod;
        if (document.ids.size() == (ended ? 1u : 0u))
        {
            ++report_.empty;
            return false;
        }
        if (!document.mask.empty() && std::count(document.mask.begin(), document.mask.end(), std::uint8_t{1}) == 0)
        {
            ++report_.without_label;
            return false;
        }
        if (!ended) { ++report_.without_end; }
        if (!ended && options_.end == ImportOptions::DocumentEnd::append)
        {
            document.ids.push_back(identity_.eod);
            if (!document.mask.empty()) { document.mask.push_back(1); }
        }
        if (tokenizer_)
        {
            const std::string text =
                tokenizer_->decode(document.ids.data(), static_cast<std::int64_t>(document.ids.size()));
            document.text_bytes = static_cast<std::int64_t>(text.size());
        }
        return true;
    }

    void fill(const ShardSetWriter& writer, bool masked)
    {
        report_.documents = writer.num_documents();
        report_.tokens = writer.num_tokens();
        report_.shards = static_cast<std::int64_t>(writer.shards().size());
        for (const CorpusShard& shard : writer.shards()) { report_.file_bytes += shard.info.file_bytes; }
        CorpusManifest& manifest = report_.manifest;
        manifest.tokenizer = identity_.name;
        manifest.fingerprint = identity_.fingerprint;
        manifest.vocab = identity_.vocab;
        manifest.eod = identity_.eod;
        manifest.dtype = shard_format::token_dtype(identity_.vocab);
        if (masked) { manifest.required_features = {std::string(shard_format::feature_loss_mask)}; }
        const bool append = options_.end == ImportOptions::DocumentEnd::append;
        manifest.options = {{"from", token_format_name(options_.format)},
                            {"append-eod", append ? "true" : "false"},
                            {"shard-tokens", fmt::format("{}", options_.shard_tokens)},
                            {"tokenizer-sha256", identity_.fingerprint}};
        manifest.input = {{"documents", number_},
                          {"empty", report_.empty},
                          {"without_end", report_.without_end},
                          {"without_label", report_.without_label}};
        manifest.shards = writer.shards();
    }

    const ImportOptions& options_;
    const ConvertObserver& observer_;
    std::unique_ptr<Tokenizer> tokenizer_;
    TokenizerIdentity identity_;
    std::int64_t number_ = 0;
    ImportReport report_;
};

}  // namespace

ImportReport import_tokens(const ImportOptions& options, const ConvertObserver& observer)
{
    return Import(options, observer).run();
}

}  // namespace plimsoll
