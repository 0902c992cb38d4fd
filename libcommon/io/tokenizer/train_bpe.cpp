#include "io/tokenizer/train_bpe.hpp"

#include <chrono>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"
#include "io/text_input_blocks.hpp"
#include "io/text_input_documents.hpp"
#include "io/tokenizer/piece_splitter.hpp"
#include "io/tokenizer/unicode_normalize.hpp"

namespace plimsoll
{

namespace
{

using OrderedJson = nlohmann::ordered_json;

double seconds_since(std::chrono::steady_clock::time_point start)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

OrderedJson split_json(const std::string& pattern)
{
    return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

OrderedJson byte_level_json(bool use_regex)
{
    return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

/// As the published files of each family have it.
OrderedJson pre_tokenizer_json(const std::string& pattern)
{
    if (pattern == "gpt2") { return byte_level_json(true); }
    OrderedJson splits = OrderedJson::array();
    if (pattern == "deepseek")
    {
        const DeepseekPatterns& known = deepseek_patterns();
        for (const std::string* text : {&known.numbers, &known.cjk, &known.words})
        {
            splits.push_back(split_json(*text));
        }
    }
    else { splits.push_back(split_json(std::string(pattern_text(pattern)))); }
    splits.push_back(byte_level_json(false));
    return {{"type", "Sequence"}, {"pretokenizers", std::move(splits)}};
}

bool wants_nfc(const std::string& pattern) { return pattern == "qwen2" || pattern == "qwen3.5"; }

std::string tokenizer_json_text(const LearnedBpe& bpe, const std::string& pattern)
{
    OrderedJson json;
    json["version"] = "1.0";
    json["truncation"] = nullptr;
    json["padding"] = nullptr;
    json["added_tokens"] = OrderedJson::array();
    for (std::size_t id = 0; id < bpe.special_tokens.size(); ++id)
    {
        json["added_tokens"].push_back({{"id", id},
                                        {"content", bpe.special_tokens[id]},
                                        {"single_word", false},
                                        {"lstrip", false},
                                        {"rstrip", false},
                                        {"normalized", false},
                                        {"special", true}});
    }
    json["normalizer"] = wants_nfc(pattern) ? OrderedJson{{"type", "NFC"}} : OrderedJson();
    json["pre_tokenizer"] = pre_tokenizer_json(pattern);
    json["post_processor"] = byte_level_json(false);
    json["decoder"] = byte_level_json(false);
    OrderedJson vocab = OrderedJson::object();
    auto& rows = vocab.get_ref<OrderedJson::object_t&>();
    rows.reserve(bpe.tokens.size());
    // Straight into the rows: by key each insertion would look through all before it.
    for (std::size_t id = 0; id < bpe.tokens.size(); ++id)
    {
        static_cast<std::vector<OrderedJson::object_t::value_type>&>(rows).emplace_back(bpe.tokens[id], id);
    }
    OrderedJson merges = OrderedJson::array();
    for (const auto& merge : bpe.merges) { merges.push_back(bpe.tokens[merge.first] + " " + bpe.tokens[merge.second]); }
    json["model"] = {{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", false}};
    json["model"]["vocab"] = std::move(vocab);
    json["model"]["merges"] = std::move(merges);
    return json.dump(1) + "\n";
}

/// Several threads take blocks of the input in turn and count the pieces of their documents.
class CorpusPieces
{
  public:
    CorpusPieces(const TrainBpeOptions& options, const SplitPlan& plan, const TrainBpeObserver& observer)
        : options_(options),
          plan_(plan),
          observer_(observer),
          files_(find_input_files(options.inputs, options.text.format)),
          reader_(files_, options.text)
    {
        for (const InputFile& file : files_) { progress_.total += file.bytes; }
    }

    PieceCounts count(TrainBpeReport& report)
    {
        std::vector<Worker> workers(static_cast<std::size_t>(options_.threads));
        std::vector<std::thread> threads;
        for (std::size_t i = 1; i < workers.size(); ++i)
        {
            threads.emplace_back([this, &workers, i] { work(workers[i]); });
        }
        work(workers[0]);
        for (std::thread& thread : threads) { thread.join(); }
        // The blocks before the one that failed were all handed out: the first of several errors is the input's first.
        const Worker* failed = nullptr;
        for (const Worker& worker : workers)
        {
            if (worker.error && (failed == nullptr || worker.block < failed->block)) { failed = &worker; }
        }
        if (failed != nullptr) { std::rethrow_exception(failed->error); }
        report.input_files = static_cast<std::int64_t>(files_.size());
        report.counts.files = report.input_files;
        report.counts.bytes = progress_.done;
        for (const Worker& worker : workers) { add(worker, report); }
        for (std::size_t i = 1; i < workers.size(); ++i)
        {
            workers[0].pieces.add(workers[i].pieces);
            workers[i].pieces = PieceCounts();
        }
        return std::move(workers[0].pieces);
    }

  private:
    struct Worker
    {
        PieceCounts pieces;
        TextInputCounts counts;
        std::int64_t documents = 0;
        std::int64_t text_bytes = 0;
        std::int64_t block = 0;  ///< number of the last
        std::exception_ptr error;
    };

    static void add(const Worker& worker, TrainBpeReport& report)
    {
        report.documents += worker.documents;
        report.text_bytes += worker.text_bytes;
        report.counts.bad_records += worker.counts.bad_records;
        report.counts.invalid_utf8 += worker.counts.invalid_utf8;
        report.counts.lone_surrogates += worker.counts.lone_surrogates;
    }

    bool take_block(TextBlock& block, Worker& worker)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (failed_) { return false; }
        worker.block = num_blocks_++;
        if (!reader_.next(block)) { return false; }
        progress_.done = block.file_bytes;
        if (observer_) { observer_(progress_); }
        return true;
    }

    void work(Worker& worker)
    {
        try
        {
            BlockDocuments documents(files_, options_.text);
            PieceSplitter splitter(plan_);
            const bool nfc = wants_nfc(options_.pattern);
            std::string buffer;
            TextBlock block;
            while (take_block(block, worker))
            {
                documents.start(block);
                for (Document document; documents.next(document); ++worker.documents)
                {
                    worker.text_bytes += static_cast<std::int64_t>(document.text.size());
                    const std::string_view text =
                        nfc ? normalized(document.text, NormalForm::nfc, buffer) : document.text;
                    splitter.split(text, [&worker](std::string_view piece) { worker.pieces.add(piece); });
                }
            }
            worker.counts = documents.counts();
        }
        catch (...)
        {
            worker.error = std::current_exception();
            const std::lock_guard<std::mutex> lock(mutex_);
            failed_ = true;
        }
    }

    const TrainBpeOptions& options_;
    const SplitPlan& plan_;
    const TrainBpeObserver& observer_;
    std::vector<InputFile> files_;
    std::mutex mutex_;  ///< of all below
    BlockReader reader_;
    TrainBpeProgress progress_;
    std::int64_t num_blocks_ = 0;
    bool failed_ = false;
};

}  // namespace

std::vector<std::string> train_bpe_patterns()
{
    return {"gpt2", "cl100k", "llama3", "qwen2", "qwen3.5", "o200k", "tekken", "deepseek"};
}

TrainBpeReport train_bpe(const TrainBpeOptions& options, const TrainBpeObserver& observer)
{
    EXPECT(options.threads >= 1);
    check_bpe_options(options.bpe);
    TrainBpeReport report;
    auto start = std::chrono::steady_clock::now();
    const SplitPlan plan = compile_split_plan(pre_tokenizer_json(options.pattern));
    const PieceCounts pieces = CorpusPieces(options, plan, observer).count(report);
    report.pieces = pieces.total();
    report.distinct_pieces = pieces.num();
    report.count_seconds = seconds_since(start);
    VALIDATE(report.pieces > 0, UsageError, "no text in {} input file{} ({} documents, {} bad). nothing to learn from",
             report.input_files, report.input_files == 1 ? "" : "s", report.documents, report.counts.bad_records);

    start = std::chrono::steady_clock::now();
    report.bpe = learn_bpe(pieces, options.bpe,
                           [&](std::int64_t ids)
                           {
                               if (!observer) { return; }
                               observer({TrainBpeProgress::Phase::learn, ids, options.bpe.vocab});
                           });
    report.learn_seconds = seconds_since(start);
    report.json = tokenizer_json_text(report.bpe, options.pattern);
    return report;
}

}  // namespace plimsoll
