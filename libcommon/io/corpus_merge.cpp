#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "io/corpus.hpp"
#include "io/corpus_bad_records.hpp"
#include "io/corpus_finish.hpp"
#include "io/corpus_output.hpp"
#include "io/corpus_set_writer.hpp"
#include "io/file.hpp"

namespace plimsoll
{

void check_corpus_sets(const CorpusSet& train, const CorpusSet& validation, const CorpusReport& report, double share)
{
    const std::int64_t written = train.documents + validation.documents;
    const CorpusCounts& counts = report.counts;
    std::string why = fmt::format("{} empty, {} bad", counts.empty, counts.bad);
    if (counts.unlabelled > 0) { why += fmt::format(", {} without a trained token", counts.unlabelled); }
    if (counts.dropped.total() > 0) { why += fmt::format(", {} dropped by filters", counts.dropped.total()); }
    VALIDATE(written > 0, UsageError, "no documents in {} input {} ({}). nothing was written", report.input_files,
             report.input_files == 1 ? "file" : "files", why);
    if (share <= 0) { return; }
    const char* hint = "choose another share, or cut the text into more documents (--document)";
    VALIDATE(validation.documents > 0, UsageError, "--validation {}% chose none of {} documents. {}", share * 100,
             written, hint);
    VALIDATE(train.documents > 0, UsageError, "--validation {}% chose all of {} documents. {}", share * 100, written,
             hint);
}

void fill_corpus_manifest(CorpusReport& report, const std::vector<CorpusShard>& train,
                          const std::vector<CorpusShard>& validation)
{
    CorpusManifest& manifest = report.manifest;
    manifest.input = {{"files", report.input_files}};
    for_each_count(report.counts,
                   [&](const char* name, std::int64_t count)
                   {
                       // A filter that dropped nothing, or was not asked for, has nothing to say.
                       const bool filter = std::string_view(name).substr(0, 7) == "dropped";
                       if (!filter || count > 0) { manifest.input.emplace_back(name, count); }
                   });
    manifest.shards = train;
    manifest.shards.insert(manifest.shards.end(), validation.begin(), validation.end());
}

namespace
{

struct MergePart
{
    std::string path;
    CorpusManifest manifest;
    std::int64_t index = 0;  ///< of a part of a corpus
};

std::string option_of(const CorpusManifest& manifest, const std::string& name)
{
    for (const auto& option : manifest.options)
    {
        if (option.first == name) { return option.second; }
    }
    return "";
}

std::int64_t input_count(const CorpusManifest& manifest, const std::string& name)
{
    for (const auto& count : manifest.input)
    {
        if (count.first == name) { return count.second; }
    }
    return 0;
}

void check_belongs(const MergePart& first, const MergePart& other)
{
    const auto differ = [&](const std::string& what, const std::string& a, const std::string& b)
    {
        throw UsageError(fmt::format("'{}' and '{}' were not made alike ({} {} and {}). merge what one command made",
                                     first.path, other.path, what, a, b));
    };
    const auto& a = first.manifest.options;
    const auto& b = other.manifest.options;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    {
        if (a[i] != b[i]) { differ(a[i].first, a[i].second, b[i].second); }
    }
    if (a.size() != b.size()) { differ("options", std::to_string(a.size()), std::to_string(b.size())); }
    const auto& part = first.manifest.part;
    const auto& other_part = other.manifest.part;
    if (part.has_value() != other_part.has_value())
    {
        differ("parts", part ? "of a corpus" : "none", other_part ? "of a corpus" : "none");
    }
    if (part && part->num != other_part->num)
    {
        differ("parts", std::to_string(part->num), std::to_string(other_part->num));
    }
    if (part && part->inputs_sha256 != other_part->inputs_sha256)
    {
        differ("inputs of sha256", part->inputs_sha256.substr(0, 12), other_part->inputs_sha256.substr(0, 12));
    }
}

/// Overlapping patterns would count a corpus twice without anybody noticing.
void refuse_repeated(const std::vector<MergePart>& parts)
{
    std::set<std::string> seen;
    for (const MergePart& part : parts)
    {
        VALIDATE(seen.insert(std::filesystem::canonical(part.path).string()).second, UsageError,
                 "'{}' is named twice (its documents would be there twice). name it once", part.path);
    }
}

/// Parts of one corpus in their order, all there.
std::vector<MergePart> read_parts(const std::vector<std::string>& paths)
{
    std::vector<MergePart> parts;
    for (const std::string& path : paths)
    {
        MergePart part;
        part.path = path;
        part.manifest = read_corpus_manifest(path);
        if (part.manifest.part) { part.index = part.manifest.part->index; }
        parts.push_back(std::move(part));
    }
    VALIDATE(!parts.empty(), UsageError, "nothing to merge. name the directories of the parts");
    for (const MergePart& part : parts) { check_belongs(parts.front(), part); }
    if (!parts.front().manifest.part)
    {
        refuse_repeated(parts);
        return parts;
    }
    std::sort(parts.begin(), parts.end(), [](const MergePart& a, const MergePart& b) { return a.index < b.index; });
    const std::int64_t num = parts.front().manifest.part->num;
    for (std::int64_t i = 0; i < num; ++i)
    {
        const auto at = static_cast<std::size_t>(i);
        const bool there = at < parts.size() && parts[at].index <= i;
        VALIDATE(there, UsageError, "part {} of {} is missing. run its task, then merge again", i, num);
        VALIDATE(parts[at].index == i, UsageError, "part {} of {} is named twice ('{}')", parts[at].index, num,
                 parts[at].path);
    }
    VALIDATE(static_cast<std::int64_t>(parts.size()) == num, UsageError, "part {} of {} is named twice ('{}')",
             parts.back().index, num, parts.back().path);
    return parts;
}

class CorpusMerge
{
  public:
    CorpusMerge(const MergeOptions& options, const std::function<void(std::int64_t, std::int64_t)>& on_bytes)
        : options_(options),
          on_bytes_(on_bytes),
          parts_(read_parts(options.parts))
    {
        const CorpusManifest& first = parts_.front().manifest;
        report_.manifest = first;
        report_.manifest.part.reset();
        report_.replaced_bad_records = option_of(first, "on-bad-record") == "replace";
        for (const MergePart& part : parts_)
        {
            const std::int64_t files = input_count(part.manifest, "files");
            // Each part of a corpus counts the files of all of it.
            report_.input_files = first.part ? files : report_.input_files + files;
            CorpusCounts counts;
            for_each_count(counts,
                           [&](const char* name, std::int64_t& count) { count = input_count(part.manifest, name); });
            report_.counts.add(counts);
            for (const CorpusShard& shard : part.manifest.shards) { total_bytes_ += shard.info.file_bytes; }
        }
    }

    CorpusReport run()
    {
        const auto start = std::chrono::steady_clock::now();
        const auto existing = options_.existing == CorpusOptions::Existing::replace ? CorpusOutput::Existing::replace
                                                                                    : CorpusOutput::Existing::refuse;
        CorpusOutput output(options_.out, existing);
        output.clear();
        std::optional<CorpusSetWriter> train = merge_set("train", output.directory());
        std::optional<CorpusSetWriter> validation = merge_set("validation", output.directory());
        merge_bad_records(output.directory());
        const std::string share = option_of(report_.manifest, "validation");
        check_corpus_sets(train->counts(), validation->counts(), report_, share.empty() ? 0 : std::stod(share));
        fill_corpus_manifest(report_, train->shards(), validation->shards());
        write_file_atomically(output.directory() + "/" + corpus_manifest_name, manifest_text(report_.manifest));
        output.publish();
        report_.train = train->counts();
        report_.validation = validation->counts();
        report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        report_.write_seconds = report_.seconds;
        return std::move(report_);
    }

  private:
    std::optional<CorpusSetWriter> merge_set(const std::string& set, const std::string& directory)
    {
        const CorpusManifest& first = parts_.front().manifest;
        const std::string shard_tokens = option_of(first, "shard-tokens");
        VALIDATE(!shard_tokens.empty(), FormatError, "{}: does not say its shard-tokens", parts_.front().path);
        const bool with_mask =
            std::any_of(parts_.begin(), parts_.end(),
                        [](const MergePart& part) { return !part.manifest.required_features.empty(); });
        std::optional<CorpusSetWriter> out;
        out.emplace(set, directory, std::stoll(shard_tokens),
                    ShardIdentity{first.vocab, first.tokenizer, first.fingerprint, with_mask}, SpillFiles::unnamed);
        for (const MergePart& part : parts_)
        {
            for (const CorpusShard& shard : part.manifest.shards)
            {
                if (shard.set == set) { copy(part.path + "/" + shard.info.path, with_mask, *out); }
            }
        }
        out->finish();
        return out;
    }

    void copy(const std::string& path, bool with_mask, CorpusSetWriter& out)
    {
        const TokenShardReader reader(path);
        const std::vector<std::uint64_t> ends = reader.document_ends();
        const std::vector<std::uint64_t> text_bytes = reader.document_text_bytes();
        std::int64_t begin = 0;
        for (std::size_t i = 0; i < ends.size(); ++i)
        {
            const auto end = static_cast<std::int64_t>(ends[i]);
            read_ids(reader, begin, end - begin);
            if (with_mask)
            {
                mask_.resize(static_cast<std::size_t>(end - begin));
                reader.read_loss_mask(begin, end - begin, mask_.data());
            }
            report_.lengths.add(end - begin);
            out.add(ids_.data(), with_mask ? mask_.data() : nullptr, end - begin,
                    static_cast<std::int64_t>(text_bytes[i]));
            begin = end;
        }
        done_bytes_ += reader.info().file_bytes;
        if (on_bytes_) { on_bytes_(done_bytes_, total_bytes_); }
    }

    void read_ids(const TokenShardReader& reader, std::int64_t begin, std::int64_t num)
    {
        constexpr std::int64_t piece = 1 << 16;
        wide_.resize(piece);
        ids_.resize(static_cast<std::size_t>(num));
        for (std::int64_t done = 0; done < num; done += piece)
        {
            const std::int64_t part = std::min(piece, num - done);
            reader.read(begin + done, part, wide_.data());
            std::transform(wide_.begin(), wide_.begin() + part, ids_.begin() + done,
                           [](std::int64_t id) { return static_cast<std::uint32_t>(id); });
        }
    }

    void merge_bad_records(const std::string& directory)
    {
        BadRecordFile out(directory + "/bad_records.jsonl");
        for (const MergePart& part : parts_)
        {
            const std::string path = part.path + "/bad_records.jsonl";
            const std::int64_t size = std::max<std::int64_t>(0, file_size(path));
            std::string piece;
            for (std::int64_t done = 0; done < size; done += static_cast<std::int64_t>(piece.size()))
            {
                piece.resize(static_cast<std::size_t>(std::min<std::int64_t>(size - done, 1 << 20)));
                File(path, File::Mode::read).read_at(piece.data(), static_cast<std::int64_t>(piece.size()), done);
                out.append(piece);
            }
        }
        out.finish();
    }

    const MergeOptions& options_;
    const std::function<void(std::int64_t, std::int64_t)>& on_bytes_;
    std::vector<MergePart> parts_;
    CorpusReport report_;
    std::int64_t total_bytes_ = 0;
    std::int64_t done_bytes_ = 0;
    std::vector<std::int64_t> wide_;
    std::vector<std::uint32_t> ids_;
    std::vector<std::uint8_t> mask_;
};

}  // namespace

CorpusReport merge_corpora(const MergeOptions& options, const std::function<void(std::int64_t, std::int64_t)>& on_bytes)
{
    return CorpusMerge(options, on_bytes).run();
}

}  // namespace plimsoll
