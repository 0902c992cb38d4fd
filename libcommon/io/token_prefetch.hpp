#pragma once
/// Batches read ahead by one thread, so that a step does not wait for storage.
///
/// A rank asks for batches at positions that are `stride` apart (its micro-batches, one after the other). The thread has the next
/// ones ready; what is asked for twice (a pipeline stage with the first and the last chunk), or out of turn, is read at once.
/// Batches do not depend on any of this. The thread never communicates. Memory: (depth + 1) batches.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "io/token_batch.hpp"

namespace plimsoll
{

/// One caller's thread at a time.
class BatchPrefetcher
{
  public:
    static constexpr std::size_t depth = 4;
    /// Fills a batch with `num` sequences from position `first`; never called by two threads at once.
    using Read = std::function<void(std::int64_t first, std::int64_t num, TokenBatch& batch)>;

    /// The thread starts with the first batch that is asked for.
    BatchPrefetcher(Read read, std::int64_t stride);
    ~BatchPrefetcher();
    BatchPrefetcher(const BatchPrefetcher&) = delete;
    BatchPrefetcher& operator=(const BatchPrefetcher&) = delete;

    /// @throws what reading this batch threw
    void get(std::int64_t first, std::int64_t num, TokenBatch& batch);
    /// Seconds that get() took since the last call.
    double take_waited_seconds();
    /// Batches that were ready or under way when asked for.
    std::int64_t num_ahead() const { return num_ahead_; }

  private:
    struct Entry
    {
        std::int64_t first = 0;
        TokenBatch batch;
        std::exception_ptr error;
    };

    void run();
    void restart(std::int64_t first, std::int64_t num);
    void take(std::unique_lock<std::mutex>& lock, TokenBatch& batch);
    void read_now(std::int64_t first, std::int64_t num, TokenBatch& batch);

    Read read_;
    std::int64_t stride_;
    std::mutex reading_;  ///< held while read_ runs; taken without mutex_
    std::mutex mutex_;    ///< of all below
    std::condition_variable changed_;
    std::deque<Entry> ready_;
    std::int64_t num_ = 0;        ///< sequences of a batch
    std::int64_t expected_ = -1;  ///< position that get() is asked for next
    std::int64_t next_ = 0;       ///< position that the thread reads next
    std::uint64_t round_ = 0;     ///< what was read for an earlier one is thrown away
    bool stop_ = false;
    std::int64_t num_ahead_ = 0;
    double waited_ = 0;
    std::thread thread_;
};

}  // namespace plimsoll
