#include "layout/send_order.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

using Channel = std::pair<std::int64_t, std::int64_t>;  ///< from stage, to stage
/// By stage, how many of its actions are known to have ended.
using Known = std::vector<std::size_t>;

/// Where the receiver's list takes each message of a channel, in order.
std::map<Channel, std::vector<std::size_t>> places_of_receives(const PipelineSchedule& schedule)
{
    std::map<Channel, std::vector<std::size_t>> places;
    for (std::int64_t stage = 0; stage < schedule.num_stages(); ++stage)
    {
        const std::vector<Action>& actions = schedule.actions(stage);
        for (std::size_t i = 0; i < actions.size(); ++i)
        {
            if (!is_receive(actions[i].kind)) { continue; }
            places[{message_of(schedule, stage, actions[i]).from, stage}].push_back(i);
        }
    }
    return places;
}

/// Plays all stages; each message carries what its sender knows. Calls received(place, known) after each receive of `stage`.
template<class Received>
void play(const PipelineSchedule& schedule, std::int64_t stage, const Received& received)
{
    const auto num_stages = static_cast<std::size_t>(schedule.num_stages());
    std::vector<Known> known(num_stages, Known(num_stages, 0));
    std::map<Channel, std::deque<Known>> under_way;
    bool moved = true;
    while (moved)
    {
        moved = false;
        for (std::int64_t s = 0; s < schedule.num_stages(); ++s)
        {
            Known& mine = known[static_cast<std::size_t>(s)];
            std::size_t& at = mine[static_cast<std::size_t>(s)];
            for (; at < schedule.actions(s).size(); moved = true)
            {
                const Action& action = schedule.actions(s)[at];
                if (is_send(action.kind))
                {
                    const PipelineMessage message = message_of(schedule, s, action);
                    under_way[{message.from, message.to}].push_back(mine);
                }
                else if (is_receive(action.kind))
                {
                    const PipelineMessage message = message_of(schedule, s, action);
                    std::deque<Known>& arriving = under_way[{message.from, message.to}];
                    if (arriving.empty()) { break; }
                    for (std::size_t t = 0; t < num_stages; ++t) { mine[t] = std::max(mine[t], arriving.front()[t]); }
                    arriving.pop_front();
                    if (s == stage) { received(at, mine); }
                }
                ++at;
            }
        }
    }
}

}  // namespace

SendOrder::SendOrder(const PipelineSchedule& schedule, std::int64_t stage)
{
    struct Sent
    {
        Action action;
        std::size_t place = 0;     ///< in the own list
        std::size_t to = 0;
        std::size_t received = 0;  ///< in the other's list
    };
    const std::vector<Action>& actions = schedule.actions(stage);
    const auto receives = places_of_receives(schedule);
    std::vector<Sent> sent;
    std::map<std::int64_t, std::size_t> num_sent;
    for (std::size_t i = 0; i < actions.size(); ++i)
    {
        if (!is_send(actions[i].kind)) { continue; }
        const std::int64_t to = message_of(schedule, stage, actions[i]).to;
        sent.push_back({actions[i], i, static_cast<std::size_t>(to), receives.at({stage, to}).at(num_sent[to]++)});
    }
    known_.resize(actions.size() + 1);
    play(schedule, stage,
         [&](std::size_t place, const Known& known)
         {
             const auto is_known = [&](const Sent& send) { return send.place < place && send.received < known[send.to]; };
             for (const Sent& send : sent)
             {
                 if (is_known(send)) { known_[place].push_back(send.action); }
             }
             sent.erase(std::remove_if(sent.begin(), sent.end(), is_known), sent.end());
         });
    for (const Sent& send : sent) { known_.back().push_back(send.action); }
}

const std::vector<Action>& SendOrder::after()
{
    EXPECT(next_ + 1 < known_.size());
    return known_[next_++];
}

const std::vector<Action>& SendOrder::finish()
{
    EXPECT(next_ + 1 == known_.size());
    next_ = 0;
    return known_.back();
}

}  // namespace plimsoll
