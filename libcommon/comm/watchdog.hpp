#pragma once
/// Ends a wait that can no longer succeed: a rank died, ended its work, or nobody makes progress any more.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/rank_activity.hpp"

namespace plimsoll
{

/// Whether a member that ended its work is a fault: not where the end of all is waited for.
enum class EndedMembers
{
    fault,
    fine
};

/// Watches the other members of a group on behalf of one that waits. One control thread.
///
/// A wait ends with CommError when
/// - the process of a member on this machine is gone (seen within about 1.5 s);
/// - a member finished its work, or failed (then it is a CutOffError), without taking part;
/// - no member finished an operation for `seconds`. Members that cannot be read from here do not count; where a member waits
///   in another group, no readable rank of the job may have finished one either.
class Watchdog
{
  public:
    /// `members`: ranks of the board in group order. @pre seconds > 0, `own` is one of `members`
    Watchdog(std::shared_ptr<const RankBoard> board, std::string group, std::vector<std::int64_t> members, std::int64_t own,
             double seconds, EndedMembers ended = EndedMembers::fault);

    /// The clock of the wait that begins now; `sequence` 0: the operation has no number. `operation` must outlive it, `number` is as in RankActivity::note().
    void start(std::string_view operation, std::int64_t number, std::int64_t sequence);
    /// Cheap: looks at the time, and at the board every few hundred ms. @throws CommError
    void check();

    const std::string& group() const { return group_; }
    double seconds() const { return seconds_; }

  private:
    struct Member
    {
        std::int64_t rank = 0;
        bool was_alive = false;
        std::int64_t ended_since_ns = 0;  ///< 0: has not ended
    };

    void look(std::int64_t now);
    void look_for_dead(Member& member, const RankRecord& record);
    void look_for_ended(Member& member, RankState state, std::int64_t now);
    std::uint64_t total_progress() const;
    [[noreturn]] void throw_silent(std::int64_t now) const;
    std::string waiting() const;

    std::shared_ptr<const RankBoard> board_;
    std::string group_;
    std::vector<Member> others_;
    std::int64_t own_;
    double seconds_;
    EndedMembers ended_;
    std::int64_t interval_ns_;
    std::string_view operation_;
    std::int64_t number_ = -1;
    std::int64_t sequence_ = 0;
    std::int64_t next_look_ns_ = 0;
    std::int64_t next_dead_look_ns_ = 0;
    std::int64_t changed_ns_ = 0;
    std::uint64_t progress_ = 0;
};

}  // namespace plimsoll
