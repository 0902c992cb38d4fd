#include "io/direct_file.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

constexpr std::int64_t alignment = File::direct_alignment;

bool is_aligned(const void* pointer)
{
    return reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(alignment) == 0;
}

std::optional<File> try_direct(const std::string& path, File::Mode mode)
{
    try
    {
        return File(path, mode == File::Mode::create ? File::Mode::read_write : mode, File::Caching::direct);
    }
    catch (const IoError&)
    {
        return std::nullopt;  // tmpfs and some network file systems: buffered then
    }
}

}  // namespace

void AlignedBuffer::Free::operator()(char* pointer) const
{
    std::free(pointer);
}

AlignedBuffer::AlignedBuffer(std::int64_t bytes)
{
    // Direct transfers pin every page: with 4 KiB pages that took an eighth of the time of a save.
    constexpr std::int64_t huge_page = std::int64_t{2} << 20;
    const std::int64_t unit = bytes >= huge_page ? huge_page : alignment;
    size_ = (bytes + unit - 1) / unit * unit;
    data_.reset(static_cast<char*>(std::aligned_alloc(static_cast<std::size_t>(unit), static_cast<std::size_t>(size_))));
    if (size_ > 0 && !data_) { throw OutOfMemory(fmt::format("cannot allocate {} bytes for a file buffer", size_)); }
    if (unit == huge_page) { ::madvise(data_.get(), static_cast<std::size_t>(size_), MADV_HUGEPAGE); }
}

DirectFile::DirectFile(const std::string& path, File::Mode mode, Policy policy) : buffered_(path, mode)
{
    if (policy == Policy::direct_if_possible) { direct_ = try_direct(path, mode); }
}

std::int64_t DirectFile::direct_part(const void* data, std::int64_t bytes, std::int64_t offset) const
{
    if (!direct_ || !is_aligned(data) || offset % alignment != 0) { return 0; }
    return bytes / alignment * alignment;
}

void DirectFile::read_at(void* data, std::int64_t bytes, std::int64_t offset) const
{
    const std::int64_t part = direct_part(data, bytes, offset);
    if (part > 0) { direct_->read_at(data, part, offset); }
    if (part < bytes) { buffered_.read_at(static_cast<char*>(data) + part, bytes - part, offset + part); }
}

void DirectFile::write_at(const void* data, std::int64_t bytes, std::int64_t offset)
{
    const std::int64_t part = direct_part(data, bytes, offset);
    if (part > 0) { direct_->write_at(data, part, offset); }
    if (part < bytes) { buffered_.write_at(static_cast<const char*>(data) + part, bytes - part, offset + part); }
}

WriteQueue::WriteQueue(int num_buffers, std::int64_t buffer_bytes) : buffer_bytes_(buffer_bytes), unmade_(num_buffers)
{
    EXPECT(num_buffers > 0 && buffer_bytes > 0);
    for (int k = 0; k < 2; ++k) { threads_.emplace_back([this] { work(); }); }
}

WriteQueue::~WriteQueue()
{
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
        jobs_.clear();  // without drain() nobody wants them
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) { thread.join(); }
}

void WriteQueue::work()
{
    std::unique_lock<std::mutex> lock(mutex_);
    while (true)
    {
        changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
        if (stop_) { return; }
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        ++in_flight_;
        const bool failed = error_ != nullptr;
        lock.unlock();
        std::exception_ptr error;
        try
        {
            if (!failed) { job.file->write_at(job.buffer.data(), job.bytes, job.offset); }
        }
        catch (...)
        {
            error = std::current_exception();
        }
        lock.lock();
        if (error && !error_) { error_ = error; }
        free_.push_back(std::move(job.buffer));
        --in_flight_;
        changed_.notify_all();
    }
}

void WriteQueue::rethrow()
{
    if (error_) { std::rethrow_exception(error_); }
}

AlignedBuffer WriteQueue::acquire()
{
    std::unique_lock<std::mutex> lock(mutex_);
    if (free_.empty() && unmade_ > 0)
    {
        --unmade_;
        return AlignedBuffer(buffer_bytes_);
    }
    changed_.wait(lock, [this] { return error_ || !free_.empty(); });
    rethrow();
    AlignedBuffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
}

void WriteQueue::release(AlignedBuffer buffer)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(buffer));
}

void WriteQueue::submit(DirectFile& file, AlignedBuffer buffer, std::int64_t bytes, std::int64_t offset)
{
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        rethrow();
        Job job;
        job.file = &file;
        job.buffer = std::move(buffer);
        job.bytes = bytes;
        job.offset = offset;
        jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
}

void WriteQueue::drain()
{
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return error_ || (jobs_.empty() && in_flight_ == 0); });
    rethrow();
}

}  // namespace plimsoll
