#pragma once
/// Text to tokens by several threads: one reads and decompresses, N parse and tokenize, the caller gets the blocks in the
/// order of the input. What comes out does not depend on N.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "io/corpus_statistics.hpp"
#include "io/document_encoder.hpp"
#include "io/document_filter.hpp"
#include "io/text_input_blocks.hpp"
#include "io/text_input_documents.hpp"

namespace plimsoll
{

struct EncodedBlock
{
    InputPosition end;            ///< where the next block begins
    std::int64_t file_bytes = 0;  ///< of all files, up to there
    EncodedDocuments documents;
    std::vector<BadRecord> bad_records;
    CorpusCounts counts;  ///< of this block, without `bytes`
    std::int64_t cache_lookups = 0;
    std::int64_t cache_hits = 0;
    double parse_seconds = 0;
    double tokenize_seconds = 0;
};

class CorpusPipeline
{
  public:
    struct Options
    {
        TextInputOptions text;
        LossMask loss_mask = LossMask::none;
        DocumentFilterOptions filter;
        int threads = 1;
    };
    /// Starts the threads. Blocks under way: at most 2 threads + 2, and of those together no more text than as many times
    /// block_bytes, unless one alone is longer.
    CorpusPipeline(std::vector<InputFile> files, const Tokenizer& tokenizer, Options options, InputPosition from);
    /// Ends them, whatever they are doing.
    ~CorpusPipeline();
    CorpusPipeline(const CorpusPipeline&) = delete;
    CorpusPipeline& operator=(const CorpusPipeline&) = delete;

    /// The next block in order; it holds until the next call. nullptr after the last.
    /// @throws what a thread threw, the first in the order of the input
    EncodedBlock* next();
    /// Of the reading thread so far.
    double read_seconds() const;

  private:
    struct Task
    {
        std::int64_t index = 0;
        TextBlock block;
        std::exception_ptr failure;
    };
    struct Result
    {
        EncodedBlock block;
        std::int64_t text_bytes = 0;  ///< that it counts for while it is under way
        std::exception_ptr failure;
    };
    void read_blocks();
    bool submit(Task task);
    void work();
    EncodedAs encode_document(const Document& document, DocumentEncoder& encoder, EncodedBlock& out) const;
    void encode(BlockDocuments& documents, DocumentEncoder& encoder, Task& task, Result& result);

    const std::vector<InputFile> files_;
    const Tokenizer& tokenizer_;
    const Options options_;
    const DocumentFilter filter_;
    const InputPosition from_;

    mutable std::mutex mutex_;
    std::condition_variable room_;         ///< for the reader
    std::condition_variable tasks_ready_;  ///< for the workers
    std::condition_variable results_ready_;
    std::deque<Task> tasks_;
    std::map<std::int64_t, Result> results_;
    std::int64_t under_way_ = 0;
    std::int64_t bytes_under_way_ = 0;
    std::int64_t num_blocks_ = -1;  ///< known when the reader is done
    bool stopping_ = false;
    double read_seconds_ = 0;

    std::int64_t next_ = 0;  ///< of the caller
    Result given_;
    bool holds_block_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace plimsoll
