#pragma once
/// What every rank is doing, in a slot that others can read while it lives and after it was killed.
///
/// A slot is 512 bytes, little-endian, text padded with zero bytes. In a file (`<run dir>/ranks/rank_00003.status`) and in
/// memory alike:
///
///     offset  type      content
///          0  char[8]   "PLIMRANK"
///          8  u64       layout version, 1
///         16  u64       state: 0 none, 1 running, 2 failed, 3 done
///         24  i64       rank
///         32  i64       process id
///         40  u64       when the process started, in clock ticks since boot (field 22 of /proc/PID/stat)
///         48  i64       step, -1 before the first
///         56  u64       progress: operations finished
///         64  i64       time of the last change, ns since 1970 UTC (a few ms coarse)
///         72  u64       edits, odd while the slot is being written
///         80  u64       1 while the operation is under way
///         88  i64       sequence number of a collective in its group, from 1; 0 or -1 for other operations
///         96  i64       number after the operation's name ("forward of micro-batch" 2, "recv from" 1), -1 for none
///        104  char[64]  group of a collective
///        168  char[64]  host
///        232  char[96]  operation
///        328            zero

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll
{

enum class RankState : std::uint64_t
{
    none = 0,
    running = 1,
    failed = 2,
    done = 3
};

/// A slot's content.
struct RankRecord
{
    std::int64_t rank = 0;
    std::int64_t pid = 0;
    std::uint64_t start_ticks = 0;
    std::string host;
    RankState state = RankState::none;
    std::int64_t step = -1;
    std::string operation;  ///< "all_reduce", "forward of micro-batch 2"; empty before the first
    bool under_way = false;
    std::string group;           ///< of a collective, else empty
    std::int64_t sequence = -1;  ///< of a collective in its group, from 1
    std::uint64_t progress = 0;
    std::int64_t time_ns = 0;
};

/// "step 7, in all_reduce of 'tp' #31", "step 7, after forward of micro-batch 2", "before its first operation"
std::string describe(const RankRecord& record);

/// Memory of a slot; see the table above.
struct RankSlot
{
    static constexpr std::size_t num_words = 64;
    std::array<std::atomic<std::uint64_t>, num_words> words{};
};
static_assert(sizeof(RankSlot) == 512 && std::atomic<std::uint64_t>::is_always_lock_free);

/// Reads while its owner may be writing; a slot whose owner was killed in the middle of a change is read as it stands.
/// Any thread. @throws FormatError when it is no slot or of another version
RankRecord read_slot(const RankSlot& slot);
/// The slot in a file. @throws IoError, FormatError naming the path
RankRecord read_rank_status(const std::string& path);
/// "<directory>/rank_00003.status"
std::string rank_status_path(const std::string& directory, std::int64_t rank);

/// Whether the process of a record is alive on this machine. Unknown where the record's host is another one or /proc does
/// not show the process as the record describes it.
enum class Liveness
{
    alive,
    dead,
    unknown
};
/// `was_seen`: the process was seen alive before, so that its absence means its end and not another process namespace.
enum class SeenBefore
{
    no,
    yes
};
Liveness liveness_of(const RankRecord& record, SeenBefore was_seen);

/// A rank's own pen. Any thread of the rank may note; of two at the same moment one text wins and both count as progress.
class RankActivity
{
  public:
    /// Writes into `slot`, which `memory` keeps alive, and marks it as running in this process.
    RankActivity(std::int64_t rank, RankSlot& slot, std::shared_ptr<void> memory);
    ~RankActivity();
    RankActivity(const RankActivity&) = delete;
    RankActivity& operator=(const RankActivity&) = delete;

    /// Also keeps the slot in a mapped file from now on, which outlives the process; at most one. The directory is made
    /// when missing. @throws IoError
    void write_to(const std::string& directory);

    /// The optimizer step that is being computed.
    void set_step(std::int64_t step);
    /// An operation finished: "forward of micro-batch" 2. Tens of nanoseconds, no allocation; at most 95 bytes are kept.
    void note(std::string_view operation, std::int64_t number = -1);
    /// Something finished that needs no name.
    void tick();
    /// An operation of a group was started, or is waited for; `number` as in note().
    void begin(std::string_view operation, std::int64_t number, std::string_view group, std::int64_t sequence);
    /// It finished.
    void end(std::string_view operation, std::int64_t number, std::string_view group, std::int64_t sequence);
    void set_state(RankState state);

    RankRecord record() const;

  private:
    struct Entry;
    void write(const Entry& entry);

    std::vector<RankSlot*> slots_;
    std::vector<std::shared_ptr<void>> memory_;
};

/// The slots of all ranks of a job, as far as they can be read from here. Thread-safe.
class RankBoard
{
  public:
    /// Slots in this process's memory: ranks are threads.
    static std::shared_ptr<RankBoard> in_memory(std::int64_t num_ranks);
    /// `slots[r]` of rank r, null where this process cannot read it; `memory` keeps them alive.
    RankBoard(std::vector<RankSlot*> slots, std::shared_ptr<void> memory);

    std::int64_t size() const { return static_cast<std::int64_t>(slots_.size()); }
    bool is_readable(std::int64_t rank) const { return slots_[static_cast<std::size_t>(rank)] != nullptr; }
    /// @pre is_readable(rank)
    RankRecord read(std::int64_t rank) const;
    /// @pre is_readable(rank)
    std::uint64_t progress(std::int64_t rank) const;
    RankState state(std::int64_t rank) const;
    /// The pen of a rank; at most one at a time for each. @pre is_readable(rank)
    std::unique_ptr<RankActivity> activity(std::int64_t rank) const;

  private:
    std::vector<RankSlot*> slots_;
    std::shared_ptr<void> memory_;
};

}  // namespace plimsoll
