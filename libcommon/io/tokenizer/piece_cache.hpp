#pragma once
/// Pieces that were met, with their ids: two tables of fixed size, for up to 15 and up to 31 bytes. Of one thread. A line of the
/// processor's cache holds two short entries or one long; a new entry pushes out the older of its line.

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "io/tokenizer/piece_hash.hpp"

namespace plimsoll
{

/// Zeroed memory on huge pages where the system has them.
template<class T>
class HugeArray
{
  public:
    explicit HugeArray(std::size_t num) : bytes_(num * sizeof(T))
    {
        void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) { throw std::bad_alloc(); }
        ::madvise(memory, bytes_, MADV_HUGEPAGE);
        data_ = static_cast<T*>(memory);
    }
    ~HugeArray() { ::munmap(data_, bytes_); }
    HugeArray(const HugeArray&) = delete;
    HugeArray& operator=(const HugeArray&) = delete;
    T& operator[](std::size_t i) { return data_[i]; }

  private:
    std::size_t bytes_;
    T* data_ = nullptr;
};

class PieceCache
{
  public:
    static constexpr std::size_t short_bytes = 15;
    static constexpr std::size_t short_ids = 4;
    static constexpr std::size_t long_bytes = 31;
    static constexpr std::size_t long_ids = 8;

    /// Its first id carries the number of ids - 1 in the highest 4 bits.
    struct alignas(32) Short
    {
        std::uint64_t low;
        std::uint64_t high;  ///< number of bytes in the highest byte
        std::uint32_t ids[short_ids];
    };
    struct alignas(64) Long
    {
        std::uint64_t words[4];  ///< number of bytes in the highest byte
        std::uint32_t ids[long_ids];
    };
    static constexpr std::uint32_t id_mask = 0x0FFFFFFFU;

    PieceCache() : short_(std::size_t{2} << short_bits), long_(std::size_t{1} << long_bits) {}

    /// Both entries of the line that a short piece belongs to.
    Short* short_line(std::uint64_t hash) { return &short_[hash >> (64 - short_bits) << 1]; }
    Long& long_entry(std::uint64_t hash) { return long_[hash >> (64 - long_bits)]; }

    static void put(Short* line, PieceWords key, const std::uint32_t* ids, std::size_t num)
    {
        line[1] = line[0];
        line[0].low = key.low;
        line[0].high = key.high;
        std::memcpy(line[0].ids, ids, num * sizeof(std::uint32_t));
        line[0].ids[0] |= static_cast<std::uint32_t>(num - 1) << 28;
    }

  private:
    static constexpr int short_bits = 16;  // 4 MiB
    static constexpr int long_bits = 15;   // 2 MiB
    HugeArray<Short> short_;
    HugeArray<Long> long_;
};

}  // namespace plimsoll
