#pragma once
/// When a rank gathers and drops the parameters of its units and reduces their gradients in one step: the trainer does what
/// this says, and the plan foretells it from the same list.
///
/// A *use* is a piece of computation that needs the parameters of some units or adds to their gradients: embedding, each block,
/// and the head (last norm and loss, forward and backward at once), in the order of the stage's schedule. Around each use:
///
///     before: gathers of this use are waited for, those of the next one start (prefetch), buffers of gradients are made
///     after:  parameters that the next use does not need, nor, with prefetch, the one after it, are dropped; a unit whose
///             gradients are complete joins the bucket, and a bucket that is large enough starts to be reduced, while the
///             backward of what lies below runs
///     finish: what is left starts, then all is waited for
///
/// Complete means: of the whole step below zero 2 (gradients add up on the rank first), of one micro-batch from zero 2 on
/// (summed over the ranks, added to the shard, dropped). With zero 2 the bucket before is waited for when the next one starts,
/// so that two are alive at most.

#include <cstdint>
#include <vector>

#include "layout/flat_layout.hpp"
#include "layout/pipeline_schedule.hpp"

namespace plimsoll
{

enum class UnitStep : std::uint8_t
{
    gather_start,    ///< all-gather of the unit's parameters into a new buffer
    gather_wait,
    drop_parameters,
    make_gradients,  ///< a zeroed buffer for the whole unit
    reduce_start,    ///< sum over the dp group
    reduce_wait,     ///< from zero 2 on: add the shard to what is kept, and drop the buffer
};

struct UnitAction
{
    UnitStep step = UnitStep::gather_start;
    std::int64_t unit = 0;
    friend bool operator==(const UnitAction& a, const UnitAction& b) { return a.step == b.step && a.unit == b.unit; }
};

/// "block": the name of a unit's buffers in events, with its layer. A literal.
const char* unit_kind_name(UnitKind kind);

/// Units by their number in FlatLayout.
struct UnitUse
{
    std::vector<std::int64_t> parameters;
    std::vector<std::int64_t> gradients;  ///< it adds to these
    std::vector<std::int64_t> completes;  ///< the gradients of a micro-batch are complete after it
};

/// The uses of a stage in one step. @pre flat is that of a rank of the stage
std::vector<UnitUse> uses_of_step(const FlatLayout& flat, const PipelineSchedule& schedule, std::int64_t stage);
/// Of one batch of validation, which passes the chunks of the stage in turn.
std::vector<UnitUse> uses_of_validation(const FlatLayout& flat, const ParallelLayout& layout, std::int64_t stage);

class UnitOrder
{
  public:
    UnitOrder(const FlatLayout& flat, const ParallelLayout& layout, std::vector<UnitUse> uses);

    std::size_t num_uses() const { return uses_.size(); }
    /// The next use begins. The result is valid until the next call.
    const std::vector<UnitAction>& before();
    /// It ended.
    const std::vector<UnitAction>& after();
    /// All uses have ended. The next call of before() starts over.
    const std::vector<UnitAction>& finish();

  private:
    enum class Gathered : std::uint8_t { no, started, yes };
    enum class Gradients : std::uint8_t { none, open, in_bucket, reducing };
    struct Unit
    {
        std::int64_t bytes = 0;     ///< of its gradients
        bool is_gathered = false;   ///< else its parameters are always there
        std::int64_t contributions = 0;  ///< micro-batches of a step
        Gathered gathered = Gathered::no;
        Gradients gradients = Gradients::none;
        std::int64_t left = 0;
    };

    Unit& at(std::int64_t unit) { return units_[static_cast<std::size_t>(unit)]; }
    const UnitUse& use(std::size_t number) const { return uses_[number]; }
    void reset();
    void start_gather(std::int64_t unit);
    void open_gradients(std::int64_t unit);
    void start_bucket();
    void wait_reducing();
    /// @pre the use next_ reads it
    bool is_read_soon(std::int64_t unit) const;

    ParallelLayout layout_;
    std::vector<UnitUse> uses_;
    std::vector<Unit> units_;
    std::size_t next_ = 0;
    std::vector<std::int64_t> bucket_, reducing_;
    std::int64_t bucket_bytes_ = 0;
    std::vector<UnitAction> actions_;
};

}  // namespace plimsoll
