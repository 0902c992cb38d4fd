#pragma once
/// The one place that counts what ranks send: calls and bytes of a group, and how long the rank waited for them.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "comm/rank_groups.hpp"

namespace plimsoll
{

/// Of one group, since it was last taken.
struct CommunicationMeter
{
    std::int64_t calls = 0;      ///< collectives, sends and receives
    std::int64_t bytes = 0;      ///< that this rank sends: sent_bytes() of layout/collective_cost.hpp
    double waited_seconds = 0;   ///< in waits, whatever went on beside them
};

/// Counts into `meter`, which must outlive the communicator and its works. Barriers and broadcasts are no part of a step and are not
/// counted.
std::unique_ptr<Communicator> make_metered_communicator(std::unique_ptr<Communicator> inner, CommunicationMeter& meter);

/// Meters of all groups of a rank with more than one member, by the group's name.
class CommunicationMeters
{
  public:
    /// Wraps the communicators of `groups`. The object must outlive their use. Call before anything holds one of them.
    explicit CommunicationMeters(RankGroups& groups);
    CommunicationMeters(const CommunicationMeters&) = delete;
    CommunicationMeters& operator=(const CommunicationMeters&) = delete;

    /// What was counted, and starts over.
    std::map<std::string, CommunicationMeter> take();

  private:
    std::map<std::string, CommunicationMeter> meters_;
};

}  // namespace plimsoll
