#pragma once
/// Merges the bytes of one piece into ids: again and again the pair with the lowest rank, the leftmost of equals. Short pieces by
/// looking for the lowest in a row of ranks; long ones as short windows that overlap, in n steps. Where windows do not agree (tokens
/// longer than they are, or most odd merges), through one list of places for each rank, in n log n steps.
/// Of one thread; its memory grows with the longest piece of that last kind.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "io/tokenizer/bpe_tables.hpp"

namespace plimsoll
{

class BpeMerger
{
  public:
    explicit BpeMerger(const BpeTables& tables) : tables_(tables) {}

    /// Appends the ids of a piece that is no whole token (or whose tokens merge like any). Returns how many unknown ids.
    std::int64_t merge(std::string_view piece, std::vector<std::uint32_t>& ids);

    /// @pre 1 <= bytes <= max_short, every byte has an id. `ids` has room for `bytes`. Returns how many.
    std::size_t merge_short(const char* piece, std::size_t bytes, std::uint32_t* ids);

    /// A piece for merge_all(), as merge_short() takes it.
    struct Job
    {
        const char* piece;
        std::size_t bytes;
        std::uint32_t* ids;
        std::size_t num_ids;  ///< the answer
    };
    /// merge_short() of many pieces, a step of each in turn: while one waits for memory the others go on.
    void merge_all(Job* jobs, std::size_t num);

    static constexpr std::size_t max_short = 64;

  private:
    static constexpr std::int64_t none = -1;
    struct Part
    {
        std::int64_t previous;
        std::int64_t next;
        std::uint32_t id;
        std::uint32_t rank;  ///< of the pair with the next part
    };
    struct Bucket
    {
        std::uint32_t rank = 0;
        std::size_t head = 0;
        bool is_sorted = true;
        std::vector<std::int64_t> places;
    };

    /// Bytes of a long piece and the ids that they have without the rest.
    struct Token
    {
        std::size_t begin;  ///< in the piece
        std::uint32_t id;
    };
    struct Window
    {
        std::size_t begin = 0;
        std::size_t end = 0;
        std::size_t first = 0;  ///< index of the first token that is not in the result yet
        std::vector<Token> tokens;
    };
    static constexpr std::size_t wide_bytes = 4096;  ///< window for what windows of max_short cannot decide
    static constexpr std::size_t overlap_bytes = 12;

    static constexpr std::uint64_t no_pair = ~0ULL;
    /// A piece of at most max_short bytes on its way. Parts stay where they began and live in a mask. A pair is its rank << 6 | place,
    /// so that the lowest value is the leftmost of the lowest rank.
    struct Lane
    {
        alignas(16) std::uint32_t pairs[max_short];
        std::uint32_t parts[max_short];
        std::uint64_t alive;
        std::size_t num_pairs;  ///< to look at: a multiple of 16
        /// The pairs that the last merge made, not looked up yet; no_pair without.
        std::uint64_t left_pair;
        std::uint64_t right_pair;
        std::size_t left_place;
        std::size_t right_place;
        Job* job;
    };
    static constexpr std::size_t num_lanes = 8;

    void start_lane(const char* piece, std::size_t bytes, Lane& lane);
    void start_pairs(const unsigned char* piece, std::uint64_t wide, Lane& lane);
    bool step_lane(Lane& lane);
    static std::size_t lane_ids(const Lane& lane, std::uint32_t* ids);
    const Lane& merge_lane(const char* piece, std::size_t bytes);
    bool merge_windows(std::string_view piece, std::size_t bytes, std::vector<std::uint32_t>& ids);
    bool join_window(std::string_view piece, std::size_t from, std::size_t bytes, std::vector<std::uint32_t>& ids);
    void merge_window(std::string_view piece, std::size_t begin, std::size_t bytes, const Window& known,
                      Window& window);
    std::int64_t merge_whole(std::string_view piece, std::vector<std::uint32_t>& ids);
    std::int64_t start_parts(std::string_view piece);
    void merge_long();
    void merge_bucket(std::size_t index);
    void set_pair(std::int64_t place, std::uint32_t current);
    void push(std::uint32_t rank, std::int64_t place);
    std::size_t take_bucket(std::uint32_t rank);

    const BpeTables& tables_;
    Lane lanes_[num_lanes];
    Window window_;
    Window next_;
    std::vector<Part> parts_;
    std::vector<Bucket> buckets_;
    std::vector<std::size_t> free_buckets_;
    std::vector<std::uint32_t> bucket_of_;  ///< rank to index of its bucket + 1
    std::vector<std::uint32_t> heap_;       ///< ranks that have places, the lowest on top
    bool found_lower_ = false;
};

}  // namespace plimsoll
