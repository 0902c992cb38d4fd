#pragma once
/// A byte-level BPE out of text files: counts the pieces of the corpus on several threads, learns merges, writes a
/// tokenizer.json that HF `tokenizers` and make_tokenizer() load.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/text_input.hpp"
#include "io/tokenizer/bpe_trainer.hpp"

namespace plimsoll
{

struct TrainBpeOptions
{
    std::vector<std::string> inputs;
    TextInputOptions text;
    BpeTrainerOptions bpe;
    std::string pattern = "llama3";  ///< a name out of train_bpe_patterns()
    int threads = 1;
};

struct TrainBpeReport
{
    TextInputCounts counts;
    std::int64_t input_files = 0;
    std::int64_t documents = 0;
    std::int64_t text_bytes = 0;  ///< of documents
    std::int64_t pieces = 0;
    std::int64_t distinct_pieces = 0;
    LearnedBpe bpe;
    std::string json;  ///< the tokenizer.json
    double count_seconds = 0;
    double learn_seconds = 0;
};

struct TrainBpeProgress
{
    enum class Phase
    {
        count,  ///< bytes of the files
        learn   ///< ids
    };
    Phase phase = Phase::count;
    std::int64_t done = 0;
    std::int64_t total = 0;
};

/// Told from one thread at a time; may throw to stop.
using TrainBpeObserver = std::function<void(const TrainBpeProgress&)>;

/// gpt2, cl100k, llama3, qwen2, qwen3.5, o200k, tekken, deepseek. The qwen ones normalize to NFC.
std::vector<std::string> train_bpe_patterns();

/// The result is a function of the texts and the options alone, not of threads or the order of documents.
/// Memory: per thread a block of text and the pieces that it met, and what learn_bpe() says; it grows with the number of
/// distinct pieces, not with the length of the text.
/// @throws UsageError for input without a document, and what TextInput and learn_bpe() throw
TrainBpeReport train_bpe(const TrainBpeOptions& options, const TrainBpeObserver& observer = {});

}  // namespace plimsoll
