#pragma once
/// What the model tells of its progress: a use of units begins, or has ended (plan/unit_order.hpp).

namespace plimsoll::nn
{

class UnitUses
{
  public:
    virtual ~UnitUses() = default;
    virtual void before() = 0;
    virtual void after() = 0;
};

}  // namespace plimsoll::nn
