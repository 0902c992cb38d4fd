#pragma once
/// Memory that the members of a group share when all of them run on one node. Internal to comm_mpi.
///
/// For each member a ring of slots, which it alone writes and the others read, and counters that say how far it has come. The
/// memory has no name in any file system (docs/adr/0022): it is gone with the last process that maps it, however that one ends.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.hpp"
#include "comm/communicator.hpp"

namespace plimsoll
{

/// What an operation is, for members to find out that they disagree.
struct SharedCall
{
    const char* name = "";
    ReduceOp op = ReduceOp::sum;
    Dtype dtype = Dtype::f32;
    std::int64_t count = 0;  ///< of the smaller buffer
};

class SharedWindow
{
  public:
    /// How the others find the memory that the first member made.
    struct Offer
    {
        std::int64_t pid = 0;
        std::int64_t fd = -1;  ///< -1: could not be made
        std::uint64_t token = 0;
    };

    static constexpr std::int64_t slot_bytes = std::int64_t{128} << 10;

    /// A window without memory. @pre size >= 2, 0 <= own < size: in group ranks
    SharedWindow(std::int64_t size, std::int64_t own);
    ~SharedWindow();
    SharedWindow(const SharedWindow&) = delete;
    SharedWindow& operator=(const SharedWindow&) = delete;

    /// On the first member, which maps it too. An Offer without fd when the system refuses.
    Offer make();
    /// On the others. False when the memory cannot be reached from here.
    bool open(const Offer& offer);
    /// Why make() or open() did not succeed.
    const std::string& reason() const { return reason_; }

    /// The own slots must be in memory before they are written: once for all. @throws OutOfMemory
    void reserve();
    /// Memory of this member's slots; 0 before reserve().
    std::int64_t reserved_bytes() const { return is_reserved_ ? ring_bytes_ : 0; }

    std::int64_t size() const { return size_; }
    std::int64_t own() const { return own_; }
    std::int64_t num_slots() const { return num_slots_; }
    char* slot(std::int64_t member, std::int64_t piece) const
    {
        return memory_ + control_bytes_ + member * ring_bytes_ + piece % num_slots_ * slot_bytes;
    }

    /// Pieces of all operations of the group are counted from 0. For each of them a member goes through these stages in turn, a
    /// stage of one piece after that stage of the piece before; a counter says how many pieces have passed a stage.
    enum Stage : std::size_t
    {
        filled,   ///< its slot holds what the others need
        reduced,  ///< its slot holds the sum of its part
        taken     ///< it needs nobody's slot of this piece any more
    };
    static constexpr std::size_t num_stages = 3;

    std::int64_t passed(Stage stage) const { return counter(own_, stage).load(std::memory_order_relaxed); }
    /// All that this member wrote and read before becomes visible with it.
    void pass(Stage stage) { counter(own_, stage).store(passed(stage) + 1, std::memory_order_release); }
    /// Whether all others have passed the stage with a piece.
    bool others_passed(Stage stage, std::int64_t piece);

    /// The ordinals of an operation's pieces; returns the first.
    std::int64_t take_pieces(std::int64_t num)
    {
        const std::int64_t first = next_piece_;
        next_piece_ += num;
        return first;
    }

    /// Beside a slot that this member fills.
    void sign(std::int64_t piece, const SharedCall& call);
    /// Empty when `member` signed the piece alike; else what it said. After it passed `filled`.
    std::string disagreement(std::int64_t member, std::int64_t piece, const SharedCall& call) const;

  private:
    struct Control;
    struct Signature;

    std::atomic<std::int64_t>& counter(std::int64_t member, Stage stage) const;
    Signature& signature(std::int64_t member, std::int64_t piece) const;
    bool map(int fd);
    bool fail(const std::string& what, int error);

    std::int64_t size_;
    std::int64_t own_;
    std::int64_t ring_bytes_;
    std::int64_t num_slots_;
    std::int64_t member_control_bytes_;
    std::int64_t control_bytes_;
    std::string reason_;
    int fd_ = -1;
    char* memory_ = nullptr;
    bool is_reserved_ = false;
    std::int64_t next_piece_ = 0;
    std::array<std::int64_t, num_stages> seen_{};  ///< pieces that all others are known to have passed
};

/// "all_reduce of 10 f32 (sum)"
std::string text_of(const SharedCall& call);

}  // namespace plimsoll
