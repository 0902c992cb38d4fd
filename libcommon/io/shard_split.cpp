#include "io/shard_split.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "base/units.hpp"
#include "io/corpus_manifest.hpp"
#include "io/file.hpp"
#include "io/token_formats/shard_set.hpp"

namespace plimsoll
{

namespace
{

/// One of the directories on its way.
struct PartOutput
{
    PartOutput(const SplitOptions& options, std::size_t part, const CorpusManifest& manifest, bool train_mask,
               bool validation_mask)
        : output(options.parts[part].out, options.existing),
          train("train", output.directory(), "", identity_of(manifest), options.shard_tokens, train_mask),
          validation("validation", output.directory(), "validation/", identity_of(manifest), options.shard_tokens,
                     validation_mask)
    {
        clear_partial(output.directory());
    }

    CorpusOutput output;
    ShardSetWriter train;
    ShardSetWriter validation;
};

std::size_t part_of(const CounterRng& choice, const std::vector<double>& ends, const std::vector<std::uint32_t>& ids)
{
    const std::uint64_t hash = XXH3_64bits(ids.data(), ids.size() * sizeof(std::uint32_t));
    const double place = choice.uniform(hash >> 1);
    const auto part = std::upper_bound(ends.begin(), ends.end(), place) - ends.begin();
    return std::min(static_cast<std::size_t>(part), ends.size() - 1);
}

SplitReport finish_part(PartOutput& part, const SplitOptions& options, std::size_t index, const CorpusManifest& source)
{
    part.train.finish();
    part.validation.finish();
    CorpusManifest manifest = source;
    manifest.shards = part.train.shards();
    manifest.shards.insert(manifest.shards.end(), part.validation.shards().begin(), part.validation.shards().end());
    std::string shares;
    for (const SplitPart& each : options.parts) { shares += (shares.empty() ? "" : " ") + number_text(each.share); }
    manifest.options = {{"split", fmt::format("{} of {}", index + 1, shares)},
                        {"seed", fmt::format("{}", options.seed)},
                        {"shard-tokens", fmt::format("{}", options.shard_tokens)},
                        {"of", source.options_hash()},
                        {"tokenizer-sha256", source.fingerprint}};
    SplitReport report;
    report.out = options.parts[index].out;
    report.documents = part.train.num_documents() + part.validation.num_documents();
    report.tokens = part.train.num_tokens() + part.validation.num_tokens();
    VALIDATE(report.documents > 0, UsageError, "{}={}% chose no document. choose another share", report.out,
             number_text(options.parts[index].share * 100));
    manifest.input = {{"documents", report.documents}, {"tokens", report.tokens}};
    write_file_atomically(part.output.directory() + "/" + corpus_manifest_name, manifest_text(manifest));
    return report;
}

}  // namespace

std::vector<SplitReport> split_shards(const SplitOptions& options,
                                      const std::function<void(std::int64_t total, std::int64_t done)>& observer)
{
    const CorpusManifest manifest = read_corpus_manifest(options.directory);
    for (const SplitPart& part : options.parts)
    {
        // The parts take their places one after the other: a kill in between would lose the documents of the later ones.
        std::error_code none;
        VALIDATE(options.existing == CorpusOutput::Existing::refuse ||
                     !std::filesystem::equivalent(part.out, options.directory, none),
                 UsageError, "--out names the shards that are split ('{}'). choose another directory", part.out);
    }
    ShardDocuments train(shard_paths_of(manifest, options.directory, "train"));
    ShardDocuments validation(shard_paths_of(manifest, options.directory, "validation"));
    std::vector<double> ends;
    std::vector<std::unique_ptr<PartOutput>> parts;
    for (std::size_t i = 0; i < options.parts.size(); ++i)
    {
        ends.push_back((ends.empty() ? 0 : ends.back()) + options.parts[i].share);
        parts.push_back(
            std::make_unique<PartOutput>(options, i, manifest, train.has_loss_mask(), validation.has_loss_mask()));
    }
    EXPECT(!ends.empty() && std::abs(ends.back() - 1) < 1e-9);
    const CounterRng choice(options.seed, RngPurpose::split, hash_name("split of shards"));
    const std::int64_t total = train.total_bytes() + validation.total_bytes();
    for (ShardDocuments* documents : {&train, &validation})
    {
        for (TokenDocument document; documents->next(document);)
        {
            PartOutput& part = *parts[part_of(choice, ends, document.ids)];
            (documents == &train ? part.train : part.validation).add(document);
            if (observer) { observer(total, train.bytes_read() + validation.bytes_read()); }
        }
    }
    std::vector<SplitReport> reports;
    for (std::size_t i = 0; i < parts.size(); ++i) { reports.push_back(finish_part(*parts[i], options, i, manifest)); }
    for (const auto& part : parts) { part->output.publish(); }
    return reports;
}

}  // namespace plimsoll
