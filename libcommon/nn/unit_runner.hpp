#pragma once
/// Carries out on a rank's buffers what UnitOrder says: gathers and drops parameters, makes and reduces gradients.

#include "engine/gradient_reducer.hpp"
#include "nn/sharded_params.hpp"
#include "nn/unit_uses.hpp"
#include "plan/unit_order.hpp"

namespace plimsoll::nn
{

class UnitRunner final : public UnitUses
{
  public:
    /// The arguments must outlive it.
    UnitRunner(ShardedParams& params, GradientReducer& reducer, UnitOrder order, Stream& stream);

    void before() override { run(order_.before()); }
    void after() override;
    /// After the last use: what is under way ends.
    void finish() { run(order_.finish()); }
    /// All uses without computing, for ranks that have nothing to do while others of the group have.
    void skip();

  private:
    void run(const std::vector<UnitAction>& actions);
    void run(const UnitAction& action);

    ShardedParams& params_;
    GradientReducer& reducer_;
    UnitOrder order_;
    Stream& stream_;
};

}  // namespace plimsoll::nn
