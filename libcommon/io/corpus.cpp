#include "io/corpus.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "io/corpus_output.hpp"
#include "io/document_encoder.hpp"
#include "io/file.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace plimsoll
{

namespace
{

class Stopwatch
{
  public:
    /// Seconds since the last call.
    double lap()
    {
        const auto now = std::chrono::steady_clock::now();
        const double seconds = std::chrono::duration<double>(now - last_).count();
        last_ = now;
        return seconds;
    }

  private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// The shards of one set; in a dry run only their counts.
class ShardSequence
{
  public:
    /// `directory` empty: dry run.
    ShardSequence(std::string set, std::string directory, std::string prefix, std::int64_t shard_tokens,
                  const Tokenizer& tokenizer)
        : set_(std::move(set)),
          directory_(std::move(directory)),
          prefix_(std::move(prefix)),
          shard_tokens_(shard_tokens),
          tokenizer_(tokenizer)
    {
    }

    void add(const std::vector<std::uint32_t>& ids, std::int64_t text_bytes)
    {
        const auto num = static_cast<std::int64_t>(ids.size());
        if (in_shard_ > 0 && in_shard_ + num > shard_tokens_) { finish(); }
        if (in_shard_ == 0) { start(); }
        if (writer_) { writer_->add_document(ids.data(), num, text_bytes); }
        in_shard_ += num;
        ++counts_.documents;
        counts_.tokens += num;
        counts_.text_bytes += text_bytes;
    }

    void finish()
    {
        in_shard_ = 0;
        if (!writer_) { return; }
        CorpusShard shard;
        shard.set = set_;
        shard.info = writer_->finish();
        shard.info.path = relative_;
        counts_.file_bytes += shard.info.file_bytes;
        shards_.push_back(std::move(shard));
        writer_.reset();
    }

    const CorpusSet& counts() const { return counts_; }
    const std::vector<CorpusShard>& shards() const { return shards_; }

  private:
    void start()
    {
        relative_ = fmt::format("{}shard_{:05}.h5", prefix_, counts_.shards++);
        if (directory_.empty()) { return; }
        if (!prefix_.empty()) { make_directories(directory_ + "/" + prefix_); }
        writer_ = std::make_unique<TokenShardWriter>(directory_ + "/" + relative_, tokenizer_.vocab(),
                                                     tokenizer_.name(), tokenizer_.fingerprint());
    }

    std::string set_;
    std::string directory_;
    std::string prefix_;
    std::int64_t shard_tokens_;
    const Tokenizer& tokenizer_;
    std::unique_ptr<TokenShardWriter> writer_;
    std::string relative_;
    std::int64_t in_shard_ = 0;
    CorpusSet counts_;
    std::vector<CorpusShard> shards_;
};

/// bad_records.jsonl, made with its first row.
class BadRecordFile
{
  public:
    explicit BadRecordFile(std::string path) : path_(std::move(path)) {}

    void add(const BadRecord& record)
    {
        nlohmann::ordered_json row;
        row["file"] = record.file;
        row["line"] = record.line;
        row["offset"] = record.offset;
        row["reason"] = record.reason;
        const std::string text = row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
        if (!file_) { file_.emplace(path_, File::Mode::create); }
        file_->write_at(text.data(), static_cast<std::int64_t>(text.size()), bytes_);
        bytes_ += static_cast<std::int64_t>(text.size());
    }

    void finish()
    {
        if (!file_) { return; }
        file_->sync();
        file_->close();
    }

  private:
    std::string path_;
    std::optional<File> file_;
    std::int64_t bytes_ = 0;
};

const char* unit_name(DocumentUnit unit)
{
    switch (unit)
    {
        case DocumentUnit::line: return "line";
        case DocumentUnit::blank_line: return "blank-line";
        default: return "file";
    }
}

const char* policy_name(BadRecordPolicy policy)
{
    switch (policy)
    {
        case BadRecordPolicy::skip: return "skip";
        case BadRecordPolicy::replace: return "replace";
        default: return "error";
    }
}

const char* format_name(TextFormat format)
{
    switch (format)
    {
        case TextFormat::txt: return "txt";
        case TextFormat::jsonl: return "jsonl";
        case TextFormat::parquet: return "parquet";
        default: return "auto";
    }
}

/// One run from text to shards.
class CorpusRun
{
  public:
    CorpusRun(const CorpusOptions& options, const CorpusObserver& observer)
        : options_(options),
          observer_(observer),
          tokenizer_(make_tokenizer(options.tokenizer)),
          encoder_(*tokenizer_, LossMask::none)
    {
    }

    CorpusReport run()
    {
        std::vector<InputFile> files = find_input_files(options_.inputs, options_.text.format);
        report_.input_files = static_cast<std::int64_t>(files.size());
        progress_.files = report_.input_files;
        for (const InputFile& file : files) { progress_.total_bytes += file.bytes; }
        const auto existing = options_.existing == CorpusOptions::Existing::replace ? CorpusOutput::Existing::replace
                                                                                    : CorpusOutput::Existing::refuse;
        if (options_.mode == CorpusOptions::Mode::write) { output_.emplace(options_.out, existing); }
        else if (!options_.out.empty()) { check_corpus_output(options_.out, existing); }
        const std::string directory = output_ ? output_->directory() : "";
        train_.emplace("train", directory, "", options_.shard_tokens, *tokenizer_);
        validation_.emplace("validation", directory, "validation/", options_.shard_tokens, *tokenizer_);
        bad_records_.emplace(directory + "/bad_records.jsonl");
        tell(0);
        read_all(std::move(files));
        check_sets();
        finish();
        return std::move(report_);
    }

  private:
    void read_all(std::vector<InputFile> files)
    {
        TextInput input(std::move(files), options_.text,
                        [&](const BadRecord& record)
                        {
                            if (output_) { bad_records_->add(record); }
                        });
        Document document;
        while (input.next(document))
        {
            ++report_.documents;
            report_.parse_seconds += watch_.lap();
            add(document);
            if (input.counts().bytes - progress_.bytes >= 65536) { tell(input.counts().bytes); }
        }
        report_.parse_seconds += watch_.lap();
        report_.counts = input.counts();
        report_.replaced_bad_records = options_.text.on_bad_record == BadRecordPolicy::replace;
        report_.read_seconds = report_.counts.read_seconds;
        report_.parse_seconds -= report_.read_seconds;
    }

    void tell(std::int64_t bytes)
    {
        progress_.bytes = bytes;
        if (observer_) { observer_(progress_); }
    }

    void add(const Document& document)
    {
        // A longer document would otherwise be copied into the larger buffer while both exist.
        if (encoded_.ids.capacity() < document.text.size() + 1) { std::vector<std::uint32_t>().swap(encoded_.ids); }
        encoded_.clear();
        encoded_.ids.reserve(document.text.size() + 1);
        if (encoder_.encode(document, encoded_) != EncodedAs::document)
        {
            ++report_.empty;
            return;
        }
        const EncodedDocuments::Entry& entry = encoded_.entries.front();
        report_.tokenize_seconds += watch_.lap();
        report_.longest_tokens = std::max(report_.longest_tokens, entry.end);
        (is_held_out(entry.hash) ? *validation_ : *train_).add(encoded_.ids, entry.text_bytes);
        report_.write_seconds += watch_.lap();
    }

    /// By the text and not by its place, so that neither order, file cuts nor later additions move a document, and
    /// copies of a document never stand on both sides.
    bool is_held_out(std::uint64_t hash) const
    {
        return options_.validation > 0 && split_.uniform(hash >> 1) < options_.validation;
    }

    void check_sets() const
    {
        const std::int64_t written = train_->counts().documents + validation_->counts().documents;
        VALIDATE(written > 0, UsageError, "no documents in {} input {} ({} empty, {} bad). nothing was written",
                 report_.input_files, report_.input_files == 1 ? "file" : "files", report_.empty,
                 report_.counts.bad_records);
        if (options_.validation <= 0) { return; }
        const char* hint = "choose another share, or cut the text into more documents (--document)";
        VALIDATE(validation_->counts().documents > 0, UsageError, "--validation {}% chose none of {} documents. {}",
                 options_.validation * 100, written, hint);
        VALIDATE(train_->counts().documents > 0, UsageError, "--validation {}% chose all of {} documents. {}",
                 options_.validation * 100, written, hint);
    }

    void finish()
    {
        train_->finish();
        validation_->finish();
        fill_manifest();
        if (output_)
        {
            bad_records_->finish();
            crash_point("corpus_manifest");
            write_file_atomically(output_->directory() + "/" + corpus_manifest_name, manifest_text(report_.manifest));
            output_->publish();
        }
        report_.train = train_->counts();
        report_.validation = validation_->counts();
        report_.write_seconds += watch_.lap();
        report_.seconds = total_.lap();
    }

    void fill_manifest()
    {
        CorpusManifest& manifest = report_.manifest;
        manifest.tokenizer = tokenizer_->name();
        manifest.fingerprint = tokenizer_->fingerprint();
        manifest.vocab = tokenizer_->vocab();
        manifest.eod = tokenizer_->eod();
        manifest.dtype = tokenizer_->vocab() <= 65536 ? Dtype::u16 : Dtype::u32;
        const TextInputOptions& text = options_.text;
        manifest.options = {{"format", format_name(text.format)},
                            {"document", unit_name(text.document)},
                            {"text-field", text.text_field},
                            {"on-bad-record", policy_name(text.on_bad_record)},
                            {"max-record-bytes", fmt::format("{}", text.max_record_bytes)},
                            {"shard-tokens", fmt::format("{}", options_.shard_tokens)},
                            {"validation", fmt::format("{}", options_.validation)},
                            {"seed", fmt::format("{}", options_.seed)},
                            {"tokenizer-sha256", tokenizer_->fingerprint()}};
        manifest.input = {{"files", report_.input_files},
                          {"bytes", report_.counts.bytes},
                          {"documents", report_.documents},
                          {"empty", report_.empty},
                          {"bad", report_.counts.bad_records},
                          {"invalid_utf8", report_.counts.invalid_utf8},
                          {"lone_surrogates", report_.counts.lone_surrogates},
                          {"longest_document_tokens", report_.longest_tokens}};
        manifest.shards = train_->shards();
        manifest.shards.insert(manifest.shards.end(), validation_->shards().begin(), validation_->shards().end());
    }

    const CorpusOptions& options_;
    const CorpusObserver& observer_;
    CorpusProgress progress_;
    std::unique_ptr<Tokenizer> tokenizer_;
    DocumentEncoder encoder_;
    CounterRng split_{options_.seed, RngPurpose::split};
    std::optional<CorpusOutput> output_;
    std::optional<ShardSequence> train_;
    std::optional<ShardSequence> validation_;
    std::optional<BadRecordFile> bad_records_;
    EncodedDocuments encoded_;
    CorpusReport report_;
    Stopwatch watch_;
    Stopwatch total_;
};

}  // namespace

CorpusReport shard_corpus(const CorpusOptions& options, const CorpusObserver& observer)
{
    EXPECT(options.shard_tokens > 0 && options.validation >= 0 && options.validation < 1);
    return CorpusRun(options, observer).run();
}

}  // namespace plimsoll
