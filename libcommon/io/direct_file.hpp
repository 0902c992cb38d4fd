#pragma once
/// Large transfers past the page cache, and a queue that writes them in the background while the next is prepared.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/file.hpp"

namespace plimsoll
{

/// Memory at an address that O_DIRECT accepts. Moves only.
class AlignedBuffer
{
  public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(std::int64_t bytes); ///< rounded up to the alignment; contents undefined
    AlignedBuffer(AlignedBuffer&& other) noexcept : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
    AlignedBuffer& operator=(AlignedBuffer&& other) noexcept
    {
        data_ = std::move(other.data_);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }
    char* data() { return data_.get(); }
    const char* data() const { return data_.get(); }
    std::int64_t size() const { return size_; }

  private:
    struct Free
    {
        void operator()(char* pointer) const;
    };
    std::unique_ptr<char, Free> data_;
    std::int64_t size_ = 0;
};

/// A file opened twice: O_DIRECT (where the file system allows it) for whole 4 KiB pieces at aligned places, buffered
/// for heads, tails and everything else. Safe from several threads on disjoint 4 KiB pages.
class DirectFile
{
  public:
    enum class Policy { direct_if_possible, buffered_only };
    DirectFile(const std::string& path, File::Mode mode, Policy policy = Policy::direct_if_possible);

    bool is_direct() const { return direct_.has_value(); }
    File& buffered() { return buffered_; }
    const std::string& path() const { return buffered_.path(); }
    /// Any length; direct when `data` and `offset` are multiples of File::direct_alignment.
    void read_at(void* data, std::int64_t bytes, std::int64_t offset) const;
    void write_at(const void* data, std::int64_t bytes, std::int64_t offset);

  private:
    /// Bytes of the transfer that may go direct (from its start).
    std::int64_t direct_part(const void* data, std::int64_t bytes, std::int64_t offset) const;
    File buffered_;
    std::optional<File> direct_;
};

/// Writes buffers to files on two threads of its own (a disk wants more than one request at a time). One control thread
/// calls acquire(), submit() and drain(); an error of a background thread comes out of the next of these calls.
class WriteQueue
{
  public:
    WriteQueue(int num_buffers, std::int64_t buffer_bytes);
    ~WriteQueue();
    WriteQueue(const WriteQueue&) = delete;
    WriteQueue& operator=(const WriteQueue&) = delete;

    /// Waits for a free buffer of buffer_bytes.
    AlignedBuffer acquire();
    /// `file` outlives the next drain().
    void submit(DirectFile& file, AlignedBuffer buffer, std::int64_t bytes, std::int64_t offset);
    /// Gives a buffer back unwritten.
    void release(AlignedBuffer buffer);
    /// Waits until all is written (not synced). @throws what a background thread met
    void drain();

  private:
    struct Job
    {
        DirectFile* file = nullptr;
        AlignedBuffer buffer;
        std::int64_t bytes = 0;
        std::int64_t offset = 0;
    };
    void work();
    void rethrow();

    std::int64_t buffer_bytes_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<AlignedBuffer> free_;
    int unmade_ = 0; ///< buffers not allocated yet: small checkpoints need one
    std::deque<Job> jobs_;
    int in_flight_ = 0;
    bool stop_ = false;
    std::exception_ptr error_;
    std::vector<std::thread> threads_;
};

}  // namespace plimsoll
