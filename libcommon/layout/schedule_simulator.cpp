#include "layout/schedule_simulator.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

/// Runs the stages' lists against each other; a message carries the time at which it was sent.
class Simulator
{
  public:
    Simulator(const PipelineSchedule& schedule, const ActionTimes& times)
        : schedule_(schedule), times_(times), clock_(schedule.stages.size(), 0.0), next_(schedule.stages.size(), 0)
    {
        result_.stages.resize(schedule.stages.size());
    }

    SimulatedSchedule run()
    {
        bool moved = true;
        while (moved)
        {
            moved = false;
            for (std::int64_t stage = 0; stage < schedule_.num_stages(); ++stage) { moved = advance(stage) || moved; }
        }
        for (std::size_t stage = 0; stage < next_.size(); ++stage)
        {
            EXPECT(next_[stage] == schedule_.stages[stage].size());
            summarize(result_.stages[stage]);
        }
        return std::move(result_);
    }

  private:
    /// As far as messages allow; whether anything was done.
    bool advance(std::int64_t stage)
    {
        const auto s = static_cast<std::size_t>(stage);
        const std::vector<Action>& actions = schedule_.actions(stage);
        const std::size_t from = next_[s];
        for (; next_[s] < actions.size(); ++next_[s])
        {
            const Action& action = actions[next_[s]];
            if (is_send(action.kind)) { channel(stage, action).push_back(clock_[s]); }
            else if (is_receive(action.kind))
            {
                std::deque<double>& messages = channel(stage, action);
                if (messages.empty()) { break; }
                clock_[s] = std::max(clock_[s], messages.front());
                messages.pop_front();
            }
            else
            {
                const double start = clock_[s];
                clock_[s] += times_.of(action.kind);
                result_.stages[s].work.push_back({action, start, clock_[s]});
            }
        }
        return next_[s] > from;
    }

    std::deque<double>& channel(std::int64_t stage, const Action& action)
    {
        const PipelineMessage message = message_of(schedule_, stage, action);
        return under_way_[{message.from, message.to}];
    }

    void summarize(SimulatedStage& stage)
    {
        for (const TimedWork& work : stage.work) { stage.busy += work.end - work.start; }
        if (stage.work.empty()) { return; }
        stage.idle_inside = stage.work.back().end - stage.work.front().start - stage.busy;
        result_.length = std::max(result_.length, stage.work.back().end);
    }

    const PipelineSchedule& schedule_;
    const ActionTimes& times_;
    std::vector<double> clock_;
    std::vector<std::size_t> next_;
    std::map<std::pair<std::int64_t, std::int64_t>, std::deque<double>> under_way_;
    SimulatedSchedule result_;
};

}  // namespace

double ActionTimes::of(ActionKind kind) const
{
    switch (kind)
    {
        case ActionKind::forward: return forward;
        case ActionKind::backward: return backward_input + backward_weight;
        case ActionKind::backward_input: return backward_input;
        case ActionKind::backward_weight: return backward_weight;
        default: return 0;
    }
}

double SimulatedSchedule::bubble() const
{
    double busy = 0;
    for (const SimulatedStage& stage : stages) { busy += stage.busy; }
    const double all = length * static_cast<double>(stages.size());
    return all > 0 ? 1 - busy / all : 0;
}

SimulatedSchedule simulate_schedule(const PipelineSchedule& schedule, const ActionTimes& times)
{
    return Simulator(schedule, times).run();
}

}  // namespace plimsoll
