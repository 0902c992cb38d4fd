#include "nn/unit_runner.hpp"

#include "engine/recorder.hpp"
#include "nn/ops/tensor_view.hpp"

namespace plimsoll::nn
{

UnitRunner::UnitRunner(ShardedParams& params, GradientReducer& reducer, UnitOrder order, Stream& stream)
    : params_(params), reducer_(reducer), order_(std::move(order)), stream_(stream)
{
}

void UnitRunner::after()
{
    run(order_.after());
    reducer_.progress();
}

void UnitRunner::skip()
{
    for (std::size_t use = 0; use < order_.num_uses(); ++use)
    {
        before();
        after();
    }
    finish();
}

void UnitRunner::run(const std::vector<UnitAction>& actions)
{
    for (const UnitAction& action : actions) { run(action); }
}

void UnitRunner::run(const UnitAction& action)
{
    const std::int64_t u = action.unit;
    const bool of_parameters = action.step <= UnitStep::drop_parameters;
    const OpScope scope(of_parameters ? PlanOp::gather : PlanOp::reduce, params_.flat().units[static_cast<std::size_t>(u)].layer);
    switch (action.step)
    {
        case UnitStep::gather_start:
            params_.make(FlatState::params, u);
            reducer_.start_gather(u, buffer_view(params_.owned(FlatState::params, u)),
                                  buffer_view(params_.buffer(FlatState::params, u)), stream_);
            break;
        case UnitStep::gather_wait: reducer_.wait_gather(u, stream_); break;
        case UnitStep::drop_parameters: params_.drop(FlatState::params, u); break;
        case UnitStep::make_gradients: params_.make(FlatState::grads, u); break;
        case UnitStep::reduce_start: reducer_.start(u, buffer_view(params_.buffer(FlatState::grads, u)), stream_); break;
        case UnitStep::reduce_wait:
            reducer_.wait(u, stream_);
            if (!params_.comes_and_goes(FlatState::grads, u)) { break; }
            const UnitRange mine = reducer_.owned(u);
            params_.owned(FlatState::grads, u).add_(params_.buffer(FlatState::grads, u).narrow(0, mine.begin, mine.end - mine.begin));
            params_.drop(FlatState::grads, u);
            break;
    }
}

}  // namespace plimsoll::nn
