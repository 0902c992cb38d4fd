#include "io/token_prefetch.hpp"

#include <csignal>

#include <chrono>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

/// Signals go to the threads that expect them: a new thread inherits what is blocked.
class PrefetchSignalBlock
{
  public:
    PrefetchSignalBlock()
    {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~PrefetchSignalBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    PrefetchSignalBlock(const PrefetchSignalBlock&) = delete;
    PrefetchSignalBlock& operator=(const PrefetchSignalBlock&) = delete;

  private:
    sigset_t before_{};
};

}  // namespace

BatchPrefetcher::BatchPrefetcher(Read read, std::int64_t stride) : read_(std::move(read)), stride_(stride)
{
    EXPECT(stride > 0);
}

BatchPrefetcher::~BatchPrefetcher()
{
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) { thread_.join(); }
}

void BatchPrefetcher::run()
{
    std::unique_lock<std::mutex> lock(mutex_);
    while (true)
    {
        changed_.wait(lock, [&] { return stop_ || ready_.size() < depth; });
        if (stop_) { return; }
        Entry entry;
        entry.first = next_;
        next_ += stride_;
        const std::int64_t num = num_;
        const std::uint64_t round = round_;
        lock.unlock();
        try
        {
            read_now(entry.first, num, entry.batch);
        }
        catch (...)
        {
            entry.error = std::current_exception();
        }
        lock.lock();
        if (round != round_) { continue; }
        ready_.push_back(std::move(entry));
        changed_.notify_all();
    }
}

void BatchPrefetcher::read_now(std::int64_t first, std::int64_t num, TokenBatch& batch)
{
    const std::lock_guard<std::mutex> lock(reading_);
    read_(first, num, batch);
}

void BatchPrefetcher::restart(std::int64_t first, std::int64_t num)
{
    ready_.clear();
    ++round_;
    num_ = num;
    expected_ = next_ = first;
    if (!thread_.joinable())
    {
        const PrefetchSignalBlock block;
        thread_ = std::thread([this] { run(); });
    }
    changed_.notify_all();
}

/// The head of the queue, which is the batch that was asked for.
void BatchPrefetcher::take(std::unique_lock<std::mutex>& lock, TokenBatch& batch)
{
    changed_.wait(lock, [&] { return !ready_.empty(); });
    Entry entry = std::move(ready_.front());
    ready_.pop_front();
    expected_ += stride_;
    changed_.notify_all();
    if (entry.error) { std::rethrow_exception(entry.error); }
    std::swap(batch, entry.batch);
}

void BatchPrefetcher::get(std::int64_t first, std::int64_t num, TokenBatch& batch)
{
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock<std::mutex> lock(mutex_);
    if (num == num_ && first < expected_)
    {
        lock.unlock();
        read_now(first, num, batch);
    }
    else
    {
        if (num == num_ && first == expected_) { ++num_ahead_; }
        else { restart(first, num); }
        take(lock, batch);
    }
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double BatchPrefetcher::take_waited_seconds() { return std::exchange(waited_, 0.0); }

}  // namespace plimsoll
