#include "io/dedup/dedup.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "base/units.hpp"
#include "io/dedup/key_groups.hpp"
#include "io/file.hpp"
#include "io/token_formats/append_file.hpp"
#include "io/token_formats/shard_set.hpp"
#include "io/token_shard_format.hpp"

namespace plimsoll
{

namespace
{

constexpr std::int64_t dedup_batch_tokens = 1 << 20;
/// Of the keys and tables of a batch's documents: short ones would otherwise be many.
constexpr std::int64_t dedup_batch_key_bytes = 8 << 20;
constexpr std::int64_t dedup_document_bytes = 128;

const char* dedup_method_name(DedupOptions::Method method)
{
    return method == DedupOptions::Method::exact ? "exact" : "minhash";
}

/// Runs body(i) for i < num on `threads` threads. @throws what a body threw first
template<class Body>
void for_each_index(std::size_t num, int threads, const Body& body)
{
    std::atomic<std::size_t> next{0};
    std::exception_ptr failure;
    std::mutex mutex;
    const auto work = [&]
    {
        try
        {
            for (std::size_t i = next++; i < num; i = next++) { body(i); }
        }
        catch (...)
        {
            const std::lock_guard lock(mutex);
            if (!failure) { failure = std::current_exception(); }
            next = num;
        }
    };
    std::vector<std::thread> helpers;
    for (int i = 1; i < threads; ++i) { helpers.emplace_back(work); }
    work();
    for (std::thread& helper : helpers) { helper.join(); }
    if (failure) { std::rethrow_exception(failure); }
}

class Dedup
{
  public:
    Dedup(const DedupOptions& options, const DedupObserver& observer)
        : options_(options),
          observer_(observer),
          manifest_(read_corpus_manifest(options.directory)),
          minhash_(options.minhash)
    {
        const bool words = options.method == DedupOptions::Method::minhash && options.unit == DedupOptions::Unit::words;
        if (words) { open_tokenizer(); }
        for (const CorpusShard& shard : manifest_.shards) { num_documents_ += shard.info.num_documents; }
    }

    DedupReport run()
    {
        CorpusOutput output(options_.out, options_.existing);
        clear_partial(output.directory());
        Clusters clusters = find_clusters(output.directory());
        write_rest(clusters, output.directory());
        write_file_atomically(output.directory() + "/" + corpus_manifest_name, manifest_text(report_.manifest));
        output.publish();
        return std::move(report_);
    }

  private:
    void open_tokenizer()
    {
        const std::string& kind = options_.tokenizer.empty() ? manifest_.tokenizer : options_.tokenizer;
        try
        {
            tokenizer_ = make_tokenizer(kind);
        }
        catch (Error& error)
        {
            error.add_context("words need the tokenizer (--tokenizer FILE names it, --ngram-of tokens does without)");
            throw;
        }
        VALIDATE(tokenizer_->fingerprint() == manifest_.fingerprint, ConfigError,
                 "tokenizer '{}' (sha256 {}) is not that of '{}' ({})", kind, tokenizer_->fingerprint().substr(0, 12),
                 options_.directory, manifest_.fingerprint.substr(0, 12));
    }

    std::int64_t keys_of_document() const
    {
        return options_.method == DedupOptions::Method::exact ? 1 : options_.minhash.bands;
    }

    Clusters find_clusters(const std::string& directory)
    {
        const std::int64_t num_keys = num_documents_ * keys_of_document();
        // A parent for each document, and a bit that says whether it was repeated.
        const std::int64_t for_clusters = 8 * num_documents_ + num_documents_ / 8 + 1;
        const std::int64_t least = for_clusters + KeyGroups::least_memory(num_keys);
        VALIDATE(
            options_.memory_limit >= least, ConfigError,
            "--memory-limit {} is too little for {} documents (their clusters take {}, their keys at least {}). give "
            "--memory-limit {} or more",
            format_memory(static_cast<double>(options_.memory_limit)), format_grouped(num_documents_),
            format_memory(static_cast<double>(for_clusters)), format_memory(static_cast<double>(least - for_clusters)),
            bytes_text((least + 1048575) / 1048576 * 1048576));
        KeyGroups groups(directory, num_keys, options_.memory_limit - for_clusters);
        report_.key_files = groups.num_files();
        ShardDocuments documents(shard_paths_of(manifest_, options_.directory));
        total_bytes_ = 2 * documents.total_bytes();
        while (read_batch(documents)) { add_keys(groups); }
        bytes_before_ = documents.total_bytes();
        Clusters clusters(num_documents_);
        groups.for_each([&](std::int64_t first, std::int64_t item) { clusters.join(first, item); });
        return clusters;
    }

    bool read_batch(ShardDocuments& documents)
    {
        batch_.clear();
        std::int64_t tokens = 0;
        const std::int64_t each =
            dedup_document_bytes + keys_of_document() * static_cast<std::int64_t>(sizeof(DedupKey));
        const auto most = static_cast<std::size_t>(std::max<std::int64_t>(1, dedup_batch_key_bytes / each));
        TokenDocument document;
        while (tokens < dedup_batch_tokens && batch_.size() < most && documents.next(document))
        {
            tokens += static_cast<std::int64_t>(document.ids.size());
            batch_.push_back(std::move(document.ids));
            document.ids.clear();
        }
        tell(documents.bytes_read());
        return !batch_.empty();
    }

    void add_keys(KeyGroups& groups)
    {
        std::vector<std::vector<DedupKey>> keys(batch_.size());
        for_each_index(batch_.size(), options_.threads, [&](std::size_t i) { keys[i] = keys_of(batch_[i]); });
        for (const std::vector<DedupKey>& of_document : keys)
        {
            for (const DedupKey& key : of_document) { groups.add(key, document_); }
            ++document_;
        }
    }

    /// None of a document without a single word: it is like no other.
    std::vector<DedupKey> keys_of(const std::vector<std::uint32_t>& ids) const
    {
        if (options_.method == DedupOptions::Method::exact) { return {exact_key(ids)}; }
        std::vector<std::uint64_t> units;
        std::vector<std::uint64_t> ngrams;
        if (tokenizer_)
        {
            append_word_hashes(tokenizer_->decode(ids.data(), static_cast<std::int64_t>(ids.size())), units);
        }
        else { append_token_hashes(ids, units); }
        minhash_.ngrams(units, ngrams);
        if (ngrams.empty()) { return {}; }
        return minhash_.keys(minhash_.signature(ngrams));
    }

    void write_rest(Clusters& clusters, const std::string& directory)
    {
        std::vector<bool> has_copies(static_cast<std::size_t>(num_documents_));
        AppendFile list(directory + "/duplicates.jsonl");
        std::int64_t number = 0;
        std::vector<CorpusShard> shards;
        for (const std::string set : {"train", "validation"})
        {
            ShardDocuments documents(shard_paths_of(manifest_, options_.directory, set));
            ShardSetWriter writer(set, directory, set == "train" ? "" : "validation/", identity_of(manifest_),
                                  options_.shard_tokens, documents.has_loss_mask());
            for (TokenDocument document; documents.next(document); ++number)
            {
                const std::int64_t first = clusters.root(number);
                const auto tokens = static_cast<std::int64_t>(document.ids.size());
                report_.tokens += tokens;
                tell(documents.bytes_read());
                if (first == number)
                {
                    writer.add(document);
                    continue;
                }
                ++report_.duplicates;
                report_.duplicate_tokens += tokens;
                report_.clusters += has_copies[static_cast<std::size_t>(first)] ? 0 : 1;
                has_copies[static_cast<std::size_t>(first)] = true;
                const std::string row = fmt::format("{{\"document\":{},\"of\":{}}}\n", number, first);
                list.append(row.data(), static_cast<std::int64_t>(row.size()));
            }
            writer.finish();
            bytes_before_ += documents.total_bytes();
            shards.insert(shards.end(), writer.shards().begin(), writer.shards().end());
        }
        list.publish();
        report_.documents = number;
        fill_manifest(std::move(shards));
    }

    void fill_manifest(std::vector<CorpusShard> shards)
    {
        CorpusManifest& manifest = report_.manifest;
        manifest = manifest_;
        manifest.shards = std::move(shards);
        const MinhashParameters& minhash = options_.minhash;
        manifest.options = {{"dedup", dedup_method_name(options_.method)}};
        if (options_.method == DedupOptions::Method::minhash)
        {
            manifest.options.emplace_back("ngram", fmt::format("{}", minhash.ngram));
            manifest.options.emplace_back("ngram-of", tokenizer_ ? "words" : "tokens");
            manifest.options.emplace_back("bands", fmt::format("{}", minhash.bands));
            manifest.options.emplace_back("rows", fmt::format("{}", minhash.rows));
            manifest.options.emplace_back("seed", fmt::format("{}", minhash.seed));
        }
        manifest.options.emplace_back("shard-tokens", fmt::format("{}", options_.shard_tokens));
        manifest.options.emplace_back("of", manifest_.options_hash());
        manifest.options.emplace_back("tokenizer-sha256", manifest_.fingerprint);
        manifest.input = {{"documents", report_.documents},
                          {"tokens", report_.tokens},
                          {"duplicates", report_.duplicates},
                          {"duplicate_tokens", report_.duplicate_tokens},
                          {"clusters", report_.clusters}};
    }

    void tell(std::int64_t done) const
    {
        if (observer_) { observer_(total_bytes_, bytes_before_ + done); }
    }

    const DedupOptions& options_;
    const DedupObserver& observer_;
    CorpusManifest manifest_;
    Minhash minhash_;
    std::unique_ptr<Tokenizer> tokenizer_;
    std::int64_t num_documents_ = 0;
    std::int64_t document_ = 0;
    std::int64_t total_bytes_ = 0;
    std::int64_t bytes_before_ = 0;
    std::vector<std::vector<std::uint32_t>> batch_;
    DedupReport report_;
};

}  // namespace

DedupReport dedup_shards(const DedupOptions& options, const DedupObserver& observer)
{
    EXPECT(options.threads > 0 && options.shard_tokens > 0);
    return Dedup(options, observer).run();
}

}  // namespace plimsoll
