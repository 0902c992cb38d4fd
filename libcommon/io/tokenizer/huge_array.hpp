#pragma once
/// Tables that are read at random: on huge pages, so that finding a page costs nothing.

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

namespace plimsoll
{

/// Zeroed memory on huge pages where the system has them.
template<class T>
class HugeArray
{
  public:
    HugeArray() = default;
    explicit HugeArray(std::size_t num) : bytes_(num * sizeof(T))
    {
        void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) { throw std::bad_alloc(); }
        ::madvise(memory, bytes_, MADV_HUGEPAGE);
        data_ = static_cast<T*>(memory);
    }
    ~HugeArray()
    {
        if (data_ != nullptr) { ::munmap(data_, bytes_); }
    }
    HugeArray(HugeArray&& other) noexcept : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
    HugeArray& operator=(HugeArray&& other) noexcept
    {
        std::swap(bytes_, other.bytes_);
        std::swap(data_, other.data_);
        return *this;
    }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    void clear() { std::memset(static_cast<void*>(data_), 0, bytes_); }

  private:
    std::size_t bytes_ = 0;
    T* data_ = nullptr;
};

}  // namespace plimsoll
