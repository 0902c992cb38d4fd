#include "io/corpus_pipeline.hpp"

#include <chrono>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

double pipeline_clock()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

CorpusPipeline::CorpusPipeline(std::vector<InputFile> files, const Tokenizer& tokenizer, Options options,
                               InputPosition from)
    : files_(std::move(files)),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      filter_(options_.filter),
      from_(from)
{
    EXPECT(options_.threads > 0);
    threads_.emplace_back([this] { read_blocks(); });
    for (int i = 0; i < options_.threads; ++i)
    {
        threads_.emplace_back([this] { work(); });
    }
}

CorpusPipeline::~CorpusPipeline()
{
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
    }
    room_.notify_all();
    tasks_ready_.notify_all();
    for (std::thread& thread : threads_) { thread.join(); }
}

void CorpusPipeline::read_blocks()
{
    std::int64_t index = 0;
    std::exception_ptr failure;
    try
    {
        BlockReader reader(files_, options_.text, from_);
        for (bool more = true; more;)
        {
            Task task;
            more = reader.next(task.block);
            {
                const std::lock_guard<std::mutex> lock(mutex_);
                read_seconds_ = reader.read_seconds();
            }
            if (!more) { break; }
            task.index = index;
            if (!submit(std::move(task))) { return; }
            ++index;
        }
    }
    catch (...)
    {
        failure = std::current_exception();
    }
    if (failure)
    {
        Task task;
        task.index = index++;
        task.failure = failure;
        if (!submit(std::move(task))) { return; }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    num_blocks_ = index;
    tasks_ready_.notify_all();
    results_ready_.notify_all();
}

/// False when nobody wants it any more.
bool CorpusPipeline::submit(Task task)
{
    const std::int64_t bytes = task.block.bytes;
    const std::int64_t most = 2 * options_.threads + 2;
    std::unique_lock<std::mutex> lock(mutex_);
    room_.wait(lock,
               [&]
               {
                   const bool fits = under_way_ < most && bytes_under_way_ + bytes <= most * options_.text.block_bytes;
                   return stopping_ || under_way_ == 0 || fits;
               });
    if (stopping_) { return false; }
    ++under_way_;
    bytes_under_way_ += bytes;
    tasks_.push_back(std::move(task));
    tasks_ready_.notify_one();
    return true;
}

void CorpusPipeline::work()
{
    std::unique_ptr<BlockDocuments> documents;
    std::unique_ptr<DocumentEncoder> encoder;
    while (true)
    {
        Task task;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            tasks_ready_.wait(lock, [&] { return stopping_ || !tasks_.empty() || num_blocks_ >= 0; });
            if (stopping_ || tasks_.empty()) { return; }
            task = std::move(tasks_.front());
            tasks_.pop_front();
        }
        Result result;
        result.text_bytes = task.block.bytes;
        result.failure = task.failure;
        try
        {
            if (!documents) { documents = std::make_unique<BlockDocuments>(files_, options_.text); }
            if (!encoder) { encoder = std::make_unique<DocumentEncoder>(tokenizer_, options_.loss_mask); }
            if (!result.failure) { encode(*documents, *encoder, task, result); }
        }
        catch (...)
        {
            result.failure = std::current_exception();
        }
        const std::int64_t index = task.index;
        task = Task();
        const std::lock_guard<std::mutex> lock(mutex_);
        results_.emplace(index, std::move(result));
        results_ready_.notify_one();
    }
}

/// Through the filters too. What they drop is counted here, and for the caller a document that added no ids.
EncodedAs CorpusPipeline::encode_document(const Document& document, DocumentEncoder& encoder, EncodedBlock& out) const
{
    const bool plain = document.parts.empty() && document.ids.empty() && !document.text.empty();
    DropReason reason = plain ? filter_.reason_to_drop(document.text) : DropReason::none;
    if (reason != DropReason::none)
    {
        out.counts.dropped.count(reason);
        return EncodedAs::document;
    }
    EncodedDocuments& encoded = out.documents;
    const std::size_t begin = encoded.ids.size();
    const EncodedAs as = encoder.encode(document, encoded);
    if (as == EncodedAs::document)
    {
        reason = filter_.reason_to_drop(static_cast<std::int64_t>(encoded.ids.size() - begin));
    }
    if (reason == DropReason::none) { return as; }
    out.counts.dropped.count(reason);
    encoded.ids.resize(begin);
    encoded.mask.resize(encoded.mask.empty() ? 0 : begin);
    encoded.entries.pop_back();
    return EncodedAs::document;
}

void CorpusPipeline::encode(BlockDocuments& documents, DocumentEncoder& encoder, Task& task, Result& result)
{
    EncodedBlock& out = result.block;
    out.end = task.block.end;
    out.file_bytes = task.block.file_bytes;
    out.counts.text_bytes = task.block.text_bytes;
    const TextInputCounts before = documents.counts();
    const EncodeCounts encoded_before = encoder.counts();
    double then = pipeline_clock();
    const auto lap = [&then](double& seconds)
    {
        const double now = pipeline_clock();
        seconds += now - then;
        then = now;
    };
    // Few tokenizers make more ids than there are bytes; growing by doubling would hold them twice. Untouched memory is free.
    out.documents.ids.reserve(static_cast<std::size_t>(task.block.bytes) + task.block.rows.size() + 1);
    Document document;
    documents.start(task.block);
    for (bool more = documents.next(document); more; more = documents.next(document))
    {
        lap(out.parse_seconds);
        EncodedAs as = EncodedAs::empty;
        bool kept = true;
        try
        {
            as = encode_document(document, encoder, out);
        }
        catch (const FormatError& error)
        {
            kept = documents.reject(document, error.text());
            if (kept) { as = encode_document(document, encoder, out); }
        }
        if (kept) { ++out.counts.documents; }
        if (kept && as == EncodedAs::empty) { ++out.counts.empty; }
        if (as == EncodedAs::unlabelled) { ++out.counts.unlabelled; }
        lap(out.tokenize_seconds);
    }
    lap(out.parse_seconds);
    out.bad_records = std::move(documents.bad_records());
    out.counts.bad = documents.counts().bad_records - before.bad_records;
    out.counts.invalid_utf8 = documents.counts().invalid_utf8 - before.invalid_utf8;
    out.counts.lone_surrogates = documents.counts().lone_surrogates - before.lone_surrogates;
    const EncodeCounts& encoded = encoder.counts();
    out.counts.special_in_text = encoded.special_in_text - encoded_before.special_in_text;
    out.counts.unknown = encoded.unknown - encoded_before.unknown;
    out.counts.byte_fallback = encoded.byte_fallback - encoded_before.byte_fallback;
    out.cache_lookups = encoded.cache_lookups - encoded_before.cache_lookups;
    out.cache_hits = encoded.cache_hits - encoded_before.cache_hits;
}

EncodedBlock* CorpusPipeline::next()
{
    std::unique_lock<std::mutex> lock(mutex_);
    if (holds_block_)
    {
        // What is no longer used must be gone before the reader is told that there is room.
        lock.unlock();
        const std::int64_t bytes = given_.text_bytes;
        given_ = Result();
        lock.lock();
        --under_way_;
        bytes_under_way_ -= bytes;
        holds_block_ = false;
        room_.notify_one();
    }
    results_ready_.wait(lock, [&] { return results_.count(next_) > 0 || num_blocks_ == next_; });
    const auto found = results_.find(next_);
    if (found == results_.end()) { return nullptr; }
    given_ = std::move(found->second);
    results_.erase(found);
    holds_block_ = true;
    ++next_;
    if (given_.failure) { std::rethrow_exception(given_.failure); }
    return &given_.block;
}

double CorpusPipeline::read_seconds() const
{
    const std::lock_guard<std::mutex> lock(mutex_);
    return read_seconds_;
}

}  // namespace plimsoll
