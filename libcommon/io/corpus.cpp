#include "io/corpus.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "io/corpus_bad_records.hpp"
#include "io/corpus_finish.hpp"
#include "io/corpus_journal.hpp"
#include "io/corpus_output.hpp"
#include "io/corpus_part.hpp"
#include "io/corpus_pipeline.hpp"
#include "io/file.hpp"
#include "io/record_format.hpp"
#include "io/token_shard_format.hpp"

namespace plimsoll
{

namespace
{

/// Blocks between two states of the journal: what a kill costs.
constexpr std::int64_t blocks_between_states = 32;

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

const char* special_name(SpecialInText special)
{
    switch (special)
    {
        case SpecialInText::match: return "match";
        case SpecialInText::error: return "error";
        default: return "text";
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
          tokenizer_(make_tokenizer(options.tokenizer, options.tokenizer_options)),
          all_files_(find_input_files(options.inputs, options.text.format)),
          files_(options.num_parts > 0
                     ? files_of_part(all_files_, options.text.document, options.part, options.num_parts)
                     : all_files_)
    {
        check_special_tokens(options.text.records, *tokenizer_);
        report_.threads = options.threads;
        report_.special_in_text = options.tokenizer_options.special_in_text;
        report_.input_files = static_cast<std::int64_t>(all_files_.size());
        report_.replaced_bad_records = options.text.on_bad_record == BadRecordPolicy::replace;
        progress_.files = report_.input_files;
        progress_.total_bytes = bytes_of_ranges(files_);
        describe();
    }

    CorpusReport run()
    {
        if (is_done_part()) { return std::move(report_); }
        open_output();
        open_sets();
        resume();
        tell();
        try
        {
            read_all();
        }
        catch (const Interrupted&)
        {
            if (journal_ && !progress_at_state_) { save_state(TokenShardWriter::Durable::no); }
            throw;
        }
        check_sets();
        finish();
        return std::move(report_);
    }

  private:
    using Durable = TokenShardWriter::Durable;

    bool writes() const { return options_.mode == CorpusOptions::Mode::write; }
    LossMask loss_mask() const
    {
        return options_.text.records.format == RecordFormat::text ? LossMask::none : LossMask::wanted;
    }
    /// What standard input said before cannot be asked for again.
    bool can_resume() const
    {
        return writes() && std::none_of(files_.begin(), files_.end(),
                                        [](const InputFile& file) { return file.path == standard_input; });
    }

    /// What the manifest says before anything was read.
    void describe()
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
                            {"special-in-text", special_name(options_.tokenizer_options.special_in_text)},
                            {"eod", fmt::format("{}", tokenizer_->eod())},
                            {"tokenizer-sha256", tokenizer_->fingerprint()}};
        for (auto& limit : limits_text(options_.filter)) { manifest.options.push_back(std::move(limit)); }
        if (loss_mask() == LossMask::wanted)
        {
            manifest.required_features = {std::string(shard_format::feature_loss_mask)};
            for (auto& option : record_options_text(text.records)) { manifest.options.push_back(std::move(option)); }
        }
        if (options_.num_parts > 0)
        {
            manifest.part = CorpusPart{options_.part, options_.num_parts, inputs_fingerprint(all_files_)};
        }
    }

    bool is_done_part()
    {
        const bool asked = options_.num_parts > 0 && options_.existing == CorpusOptions::Existing::refuse && writes();
        if (!asked || !path_exists(options_.out + "/" + corpus_manifest_name)) { return false; }
        CorpusManifest done = read_corpus_manifest(options_.out);
        const CorpusManifest& wanted = report_.manifest;
        const bool same = done.options == wanted.options && done.part && done.part->index == wanted.part->index &&
                          done.part->num == wanted.part->num && done.part->inputs_sha256 == wanted.part->inputs_sha256;
        VALIDATE(same, UsageError,
                 "'{}' is part {} of another corpus (other options or inputs). choose another --out, or --force to "
                 "replace it",
                 options_.out, options_.part);
        report_.manifest = std::move(done);
        report_.done_before = true;
        return true;
    }

    void open_output()
    {
        const auto existing = options_.existing == CorpusOptions::Existing::replace ? CorpusOutput::Existing::replace
                                                                                    : CorpusOutput::Existing::refuse;
        if (writes())
        {
            if (options_.num_parts > 0) { make_directories(parent_of(options_.out)); }
            output_.emplace(options_.out, existing);
        }
        else if (!options_.out.empty()) { check_corpus_output(options_.out, existing); }
    }

    void open_sets()
    {
        const ShardIdentity identity = {tokenizer_->vocab(), tokenizer_->name(), tokenizer_->fingerprint(),
                                        loss_mask() == LossMask::wanted};
        const std::string directory = output_ ? output_->directory() : "";
        const SpillFiles spill = can_resume() ? SpillFiles::kept : SpillFiles::unnamed;
        train_.emplace("train", directory, options_.shard_tokens, identity, spill);
        validation_.emplace("validation", directory, options_.shard_tokens, identity, spill);
        bad_records_.emplace(directory + "/bad_records.jsonl");
    }

    CorpusRunIdentity identity() const
    {
        CorpusRunIdentity identity;
        identity.options = report_.manifest.options;
        identity.options.emplace_back("part", fmt::format("{} of {}", options_.part, options_.num_parts));
        identity.inputs = all_files_;
        return identity;
    }

    /// Goes on from what an earlier process left, or clears it.
    void resume()
    {
        if (!writes()) { return; }
        const std::string path = output_->directory() + "/" + corpus_journal_name;
        std::optional<CorpusJournalContent> left;
        if (can_resume() && options_.unfinished == CorpusOptions::Unfinished::go_on)
        {
            left = read_corpus_journal(path, report_.manifest);
        }
        if (left)
        {
            // It is another run's until this is sure.
            output_->keep();
            check_same_run(left->identity, identity(), output_->shown_partial());
        }
        std::int64_t journal_bytes = 0;
        if (left) { journal_bytes = resume_newest(left->candidates); }
        if (journal_bytes == 0)
        {
            output_->forget();
            output_->clear();
            open_sets();
        }
        if (can_resume()) { journal_.emplace(path, journal_bytes, identity()); }
    }

    /// Bytes of the journal up to the state; 0 when nothing of it can be used.
    std::int64_t resume_newest(std::vector<CorpusJournalContent::Candidate>& candidates)
    {
        for (CorpusJournalContent::Candidate& candidate : candidates)
        {
            try
            {
                take_up(candidate);
                return candidate.journal_bytes;
            }
            catch (const Error&)
            {
                // The machine went down before these files were on its disk: what was made before still stands.
                open_sets();
            }
        }
        return 0;
    }

    void take_up(const CorpusJournalContent::Candidate& candidate)
    {
        std::vector<CorpusShard> train;
        std::vector<CorpusShard> validation;
        std::vector<std::string> wanted = {corpus_journal_name, "bad_records.jsonl"};
        for (const CorpusShard& shard : candidate.shards)
        {
            const std::int64_t bytes = file_size(output_->directory() + "/" + shard.info.path);
            VALIDATE(bytes == shard.info.file_bytes, FormatError, "{}: has {} bytes, not {}", shard.info.path, bytes,
                     shard.info.file_bytes);
            wanted.push_back(shard.info.path);
            (shard.set == "train" ? train : validation).push_back(shard);
        }
        const CorpusRunState& state = candidate.state;
        train_->resume(state.train, std::move(train));
        validation_->resume(state.validation, std::move(validation));
        bad_records_->resume(state.bad_records_bytes, state.bad_records_crc);
        for (const auto& open :
             {std::make_pair(std::string(), state.train), std::make_pair(std::string("validation/"), state.validation)})
        {
            if (open.second.open.num_tokens == 0) { continue; }
            const std::string shard = fmt::format("{}shard_{:05}.h5", open.first, open.second.counts.shards - 1);
            for (const char* end : {".tokens.tmp", ".ends.tmp", ".text_bytes.tmp", ".loss_mask.tmp"})
            {
                wanted.push_back(shard + end);
            }
        }
        output_->clear(wanted);
        journaled_shards_ = {train_->shards().size(), validation_->shards().size()};
        report_.counts = state.counts;
        report_.lengths = state.lengths;
        position_ = state.position;
        report_.resumed_bytes = state.counts.bytes;
        progress_.bytes = state.counts.bytes;
        progress_.text_bytes = state.counts.text_bytes;
    }

    void read_all()
    {
        CorpusPipeline::Options options;
        options.loss_mask = loss_mask();
        options.filter = options_.filter;
        options.text = options_.text;
        options.threads = options_.threads;
        CorpusPipeline pipeline(files_, *tokenizer_, options, position_);
        watch_.lap();
        std::int64_t blocks = 0;
        while (EncodedBlock* block = pipeline.next())
        {
            watch_.lap();  // waiting is nobody's work
            add(*block);
            progress_at_state_ = false;
            if (train_->has_finished_spill_files() || validation_->has_finished_spill_files())
            {
                save_state(Durable::yes);
            }
            else if (++blocks % blocks_between_states == 0) { save_state(Durable::no); }
            report_.write_seconds += watch_.lap();
            tell();
        }
        report_.read_seconds = pipeline.read_seconds();
    }

    void add(const EncodedBlock& block)
    {
        const EncodedDocuments& documents = block.documents;
        std::int64_t begin = 0;
        for (const EncodedDocuments::Entry& entry : documents.entries)
        {
            const std::int64_t num = entry.end - begin;
            report_.counts.longest = std::max(report_.counts.longest, num);
            report_.lengths.add(num);
            const std::uint8_t* mask = documents.mask.empty() ? nullptr : documents.mask.data() + begin;
            CorpusSetWriter& set = is_held_out(entry.hash) ? *validation_ : *train_;
            set.add(documents.ids.data() + begin, mask, num, entry.text_bytes);
            begin = entry.end;
        }
        if (writes())
        {
            for (const BadRecord& record : block.bad_records) { bad_records_->add(record); }
        }
        report_.counts.add(block.counts);
        report_.counts.bytes = block.file_bytes;
        report_.cache_lookups += block.cache_lookups;
        report_.cache_hits += block.cache_hits;
        report_.parse_seconds += block.parse_seconds;
        report_.tokenize_seconds += block.tokenize_seconds;
        position_ = block.end;
        progress_.bytes = block.file_bytes;
        progress_.text_bytes = report_.counts.text_bytes;
    }

    /// By the text and not by its place, so that neither order, file cuts nor later additions move a document, and
    /// copies of a document never stand on both sides.
    bool is_held_out(std::uint64_t hash) const
    {
        return options_.validation > 0 && split_.uniform(hash >> 1) < options_.validation;
    }

    void save_state(Durable durable)
    {
        if (!journal_) { return; }
        CorpusRunState state;
        state.position = position_;
        state.counts = report_.counts;
        state.lengths = report_.lengths;
        state.train = train_->persist(durable);
        state.validation = validation_->persist(durable);
        state.bad_records_bytes = bad_records_->bytes();
        state.bad_records_crc = bad_records_->crc();
        if (durable == Durable::yes) { bad_records_->sync(); }
        for (; journaled_shards_.first < train_->shards().size(); ++journaled_shards_.first)
        {
            journal_->add_shard(train_->shards()[journaled_shards_.first]);
        }
        for (; journaled_shards_.second < validation_->shards().size(); ++journaled_shards_.second)
        {
            journal_->add_shard(validation_->shards()[journaled_shards_.second]);
        }
        journal_->add_state(state, durable);
        output_->keep();
        train_->remove_finished_spill_files();
        validation_->remove_finished_spill_files();
        progress_at_state_ = true;
    }

    void tell()
    {
        progress_.kept = journal_.has_value();
        if (observer_) { observer_(progress_); }
    }

    void check_sets()
    {
        const std::int64_t written = train_->counts().documents + validation_->counts().documents;
        if (options_.num_parts > 0) { return; }
        const bool done = written > 0 && (options_.validation <= 0 ||
                                          (validation_->counts().documents > 0 && train_->counts().documents > 0));
        // Going on would end here again.
        if (!done && output_) { output_->forget(); }
        check_corpus_sets(train_->counts(), validation_->counts(), report_, options_.validation);
    }

    void finish()
    {
        train_->finish();
        validation_->finish();
        // What is left to do can be done again from here.
        save_state(Durable::yes);
        report_.counts.bytes = std::max(report_.counts.bytes, progress_.total_bytes);
        fill_corpus_manifest(report_, train_->shards(), validation_->shards());
        if (output_)
        {
            bad_records_->finish();
            crash_point("corpus_manifest");
            write_file_atomically(output_->directory() + "/" + corpus_manifest_name, manifest_text(report_.manifest));
            output_->publish(corpus_journal_name);
        }
        report_.train = train_->counts();
        report_.validation = validation_->counts();
        report_.write_seconds += watch_.lap();
        report_.seconds = total_.lap();
    }

    const CorpusOptions& options_;
    const CorpusObserver& observer_;
    CorpusProgress progress_;
    std::unique_ptr<Tokenizer> tokenizer_;
    std::vector<InputFile> all_files_;
    std::vector<InputFile> files_;
    CounterRng split_{options_.seed, RngPurpose::split};
    std::optional<CorpusOutput> output_;
    std::optional<CorpusSetWriter> train_;
    std::optional<CorpusSetWriter> validation_;
    std::optional<BadRecordFile> bad_records_;
    std::optional<CorpusJournal> journal_;
    std::pair<std::size_t, std::size_t> journaled_shards_{0, 0};
    InputPosition position_;
    bool progress_at_state_ = true;  ///< nothing was added since the last state
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
