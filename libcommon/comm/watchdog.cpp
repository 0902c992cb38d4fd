#include "comm/watchdog.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

constexpr std::int64_t second_ns = 1000000000;
constexpr std::int64_t dead_look_ns = second_ns / 2;
// What a member that ended did last may still be on its way to us.
constexpr std::int64_t done_grace_ns = second_ns;
// Where all fail alike they say so together: one that still waits for the last message of what the others have done gets it.
constexpr std::int64_t failed_grace_ns = second_ns / 4;
constexpr std::size_t max_named = 8;

// Cheap, and exact to a few milliseconds.
std::int64_t coarse_steady_ns()
{
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::int64_t>(now.tv_sec) * second_ns + now.tv_nsec;
}

}  // namespace

Watchdog::Watchdog(std::shared_ptr<const RankBoard> board, std::string group, std::vector<std::int64_t> members,
                   std::int64_t own, double seconds, EndedMembers ended)
    : board_(std::move(board)), group_(std::move(group)), own_(own), seconds_(seconds), ended_(ended),
      interval_ns_(static_cast<std::int64_t>(std::min(0.25, seconds / 8) * static_cast<double>(second_ns)))
{
    EXPECT(seconds > 0);
    EXPECT(std::find(members.begin(), members.end(), own) != members.end());
    for (const std::int64_t rank : members)
    {
        EXPECT(rank >= 0 && rank < board_->size());
        if (rank == own) { continue; }
        Member member;
        member.rank = rank;
        others_.push_back(member);
    }
}

void Watchdog::start(std::string_view operation, std::int64_t number, std::int64_t sequence)
{
    operation_ = operation;
    number_ = number;
    sequence_ = sequence;
    const std::int64_t now = coarse_steady_ns();
    changed_ns_ = now;
    next_look_ns_ = now + interval_ns_;
    next_dead_look_ns_ = now + interval_ns_;
    progress_ = 0;
    for (Member& member : others_) { member.ended_since_ns = 0; }
}

void Watchdog::check()
{
    const std::int64_t now = coarse_steady_ns();
    if (now >= next_look_ns_) { look(now); }
}

void Watchdog::look(std::int64_t now)
{
    next_look_ns_ = now + interval_ns_;
    const bool look_at_processes = now >= next_dead_look_ns_;
    if (look_at_processes) { next_dead_look_ns_ = now + dead_look_ns; }
    for (Member& member : others_)
    {
        const RankState state = board_->state(member.rank);
        if (ended_ == EndedMembers::fault) { look_for_ended(member, state, now); }
        if (look_at_processes && state == RankState::running) { look_for_dead(member, board_->read(member.rank)); }
    }
    const std::uint64_t progress = total_progress();
    if (progress != progress_)
    {
        progress_ = progress;
        changed_ns_ = now;
    }
    if (static_cast<double>(now - changed_ns_) > seconds_ * static_cast<double>(second_ns)) { throw_silent(now); }
}

void Watchdog::look_for_dead(Member& member, const RankRecord& record)
{
    if (record.pid == ::getpid()) { return; }
    const Liveness liveness = liveness_of(record, member.was_alive ? SeenBefore::yes : SeenBefore::no);
    member.was_alive = member.was_alive || liveness == Liveness::alive;
    if (liveness != Liveness::dead) { return; }
    throw CommError(fmt::format("rank {} is dead (process {} on '{}' is gone; {}) while {}. look for what killed it, "
                                "for example the system's memory guard",
                                record.rank, record.pid, record.host, describe(record), waiting()));
}

void Watchdog::look_for_ended(Member& member, RankState state, std::int64_t now)
{
    if (state != RankState::done && state != RankState::failed) { return; }
    if (member.ended_since_ns == 0) { member.ended_since_ns = now; }
    const std::int64_t grace = state == RankState::done ? done_grace_ns : failed_grace_ns;
    if (now - member.ended_since_ns < grace) { return; }
    const std::string place = describe(board_->read(member.rank));
    if (state == RankState::failed)
    {
        throw CutOffError(fmt::format("rank {} failed ({}) while {}", member.rank, place, waiting()));
    }
    throw CommError(fmt::format("rank {} ended its work ({}) while {}. ranks must call the same collectives in the same order",
                                member.rank, place, waiting()));
}

/// Own progress does not count: it stands still in a wait, but for threads that work beside it.
std::uint64_t Watchdog::total_progress() const
{
    std::uint64_t total = 0;
    bool waits_elsewhere = false;
    for (const Member& member : others_)
    {
        if (!board_->is_readable(member.rank)) { continue; }
        total += board_->progress(member.rank);
        if (board_->state(member.rank) != RankState::running) { continue; }
        const RankRecord record = board_->read(member.rank);
        waits_elsewhere = waits_elsewhere || (record.under_way && record.group != group_);
    }
    if (!waits_elsewhere) { return total; }
    for (std::int64_t rank = 0; rank < board_->size(); ++rank)
    {
        if (rank != own_ && board_->is_readable(rank)) { total += board_->progress(rank); }
    }
    return total;
}

void Watchdog::throw_silent(std::int64_t now) const
{
    // Those that wait for the same thing are victims; the others are where to look.
    std::vector<std::string> suspects, victims;
    for (const Member& member : others_)
    {
        if (board_->state(member.rank) == RankState::none)
        {
            suspects.push_back(fmt::format("rank {}: not readable from here", member.rank));
            continue;
        }
        const RankRecord record = board_->read(member.rank);
        const bool same = record.under_way && record.group == group_ && record.sequence == sequence_;
        (same ? victims : suspects).push_back(fmt::format("rank {}: {}", member.rank, describe(record)));
    }
    suspects.insert(suspects.end(), victims.begin(), victims.end());
    const std::size_t num_left = suspects.size() > max_named ? suspects.size() - max_named : 0;
    suspects.resize(suspects.size() - num_left);
    throw CommError(fmt::format(
        "{} and no rank of the group made progress for {:.1f} s ({}{}). raise the watchdog's time if this is only slow",
        waiting(), static_cast<double>(now - changed_ns_) / static_cast<double>(second_ns), fmt::join(suspects, "; "),
        num_left > 0 ? fmt::format("; and {} more", num_left) : ""));
}

std::string Watchdog::waiting() const
{
    return fmt::format("rank {} waits in {}{} of '{}'{}", own_, operation_,
                       number_ >= 0 ? fmt::format(" {}", number_) : "", group_,
                       sequence_ > 0 ? fmt::format(" #{}", sequence_) : "");
}

}  // namespace plimsoll
