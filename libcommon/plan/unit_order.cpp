#include "plan/unit_order.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "layout/precision.hpp"
#include "layout/schedule_generators.hpp"

namespace plimsoll
{
namespace
{

/// Units of a chunk by what they are for.
struct ChunkUnits
{
    std::vector<std::int64_t> embedding, blocks, head;  ///< a tied embedding is in the first and the last on one stage
    std::vector<std::int64_t> head_completes;
};

std::vector<ChunkUnits> units_of_stage(const FlatLayout& flat, ChunkPlacement placement, std::int64_t num_stages,
                                       std::int64_t num_chunks, std::int64_t stage)
{
    const bool embeds = chunk_place(placement, num_stages, 0).stage == stage;
    std::vector<ChunkUnits> chunks;
    for (std::int64_t chunk = 0; chunk < num_chunks; ++chunk)
    {
        const std::int64_t here = virtual_stage(placement, num_stages, stage, chunk);
        const bool first = here == 0, last = here == num_stages * num_chunks - 1;
        ChunkUnits units;
        for (std::size_t u = 0; u < flat.units.size(); ++u)
        {
            const auto number = static_cast<std::int64_t>(u);
            const UnitKind kind = flat.units[u].kind;
            const bool tied = kind == UnitKind::tied_embedding;
            if (kind == UnitKind::block && flat.units[u].chunk == chunk) { units.blocks.push_back(number); }
            if (first && (tied || kind == UnitKind::embedding)) { units.embedding.push_back(number); }
            if (last && (tied || kind == UnitKind::head)) { units.head.push_back(number); }
            // The backward of the embedding comes after the head.
            if (last && (kind == UnitKind::head || (tied && !embeds))) { units.head_completes.push_back(number); }
        }
        chunks.push_back(std::move(units));
    }
    return chunks;
}

UnitUse reads(std::vector<std::int64_t> parameters)
{
    UnitUse use;
    use.parameters = std::move(parameters);
    return use;
}

void append_forward(const ChunkUnits& units, std::vector<UnitUse>& uses)
{
    if (!units.embedding.empty()) { uses.push_back(reads(units.embedding)); }
    for (const std::int64_t block : units.blocks) { uses.push_back(reads({block})); }
}

/// The half that makes the gradient of the input.
void append_backward_input(const ChunkUnits& units, std::vector<UnitUse>& uses)
{
    for (std::size_t b = units.blocks.size(); b-- > 0;) { uses.push_back(reads({units.blocks[b]})); }
}

/// Both halves, or that of the weights, which reads no parameters.
void append_backward(const ChunkUnits& units, ActionKind kind, std::vector<UnitUse>& uses)
{
    for (std::size_t b = units.blocks.size(); b-- > 0;)
    {
        UnitUse use;
        if (kind == ActionKind::backward) { use.parameters = {units.blocks[b]}; }
        use.gradients = {units.blocks[b]};
        use.completes = {units.blocks[b]};
        uses.push_back(std::move(use));
    }
    if (units.embedding.empty()) { return; }
    UnitUse use;
    use.gradients = units.embedding;
    use.completes = units.embedding;
    uses.push_back(std::move(use));
}

bool contains(const std::vector<std::int64_t>& units, std::int64_t unit)
{
    return std::find(units.begin(), units.end(), unit) != units.end();
}

}  // namespace

const char* unit_kind_name(UnitKind kind)
{
    switch (kind)
    {
        case UnitKind::tied_embedding: return "tied_embedding";
        case UnitKind::embedding: return "embedding";
        case UnitKind::block: return "block";
        case UnitKind::head: return "head";
    }
    return "";
}

std::vector<UnitUse> uses_of_step(const FlatLayout& flat, const PipelineSchedule& schedule, std::int64_t stage)
{
    const std::vector<ChunkUnits> chunks =
        units_of_stage(flat, schedule.placement, schedule.num_stages(), schedule.num_chunks, stage);
    std::vector<UnitUse> uses;
    for (const Action& action : schedule.actions(stage))
    {
        const ChunkUnits& units = chunks[static_cast<std::size_t>(action.chunk)];
        if (action.kind == ActionKind::backward_input) { append_backward_input(units, uses); }
        if (action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight)
        {
            append_backward(units, action.kind, uses);
        }
        if (action.kind != ActionKind::forward) { continue; }
        append_forward(units, uses);
        if (units.head.empty()) { continue; }
        UnitUse head = reads(units.head);
        head.gradients = units.head;
        head.completes = units.head_completes;
        uses.push_back(std::move(head));
    }
    return uses;
}

std::vector<UnitUse> uses_of_validation(const FlatLayout& flat, const ParallelLayout& layout, std::int64_t stage)
{
    std::vector<UnitUse> uses;
    for (const ChunkUnits& units :
         units_of_stage(flat, placement_of(layout.schedule), layout.pp, layout.virtual_stages, stage))
    {
        append_forward(units, uses);
        if (!units.head.empty()) { uses.push_back(reads(units.head)); }
    }
    return uses;
}

UnitOrder::UnitOrder(const FlatLayout& flat, const ParallelLayout& layout, std::vector<UnitUse> uses)
    : layout_(layout), uses_(std::move(uses))
{
    for (const FlatUnit& unit : flat.units)
    {
        Unit state;
        state.bytes = unit.num_elements * sum_bytes(flat.element_bytes);
        state.is_gathered = plimsoll::is_gathered(unit, layout, flat.element_bytes);
        units_.push_back(state);
    }
    for (const UnitUse& use : uses_)
    {
        for (const std::int64_t unit : use.completes) { ++at(unit).contributions; }
    }
    reset();
}

void UnitOrder::reset()
{
    next_ = 0;
    for (Unit& unit : units_) { unit.left = unit.contributions; }
}

void UnitOrder::start_gather(std::int64_t unit)
{
    if (!at(unit).is_gathered || at(unit).gathered != Gathered::no) { return; }
    at(unit).gathered = Gathered::started;
    actions_.push_back({UnitStep::gather_start, unit});
}

void UnitOrder::open_gradients(std::int64_t unit)
{
    if (!layout_.shards_gradients() || at(unit).gradients == Gradients::open) { return; }
    // Its buffer of the micro-batch before is still on its way.
    if (at(unit).gradients == Gradients::in_bucket) { start_bucket(); }
    if (at(unit).gradients == Gradients::reducing) { wait_reducing(); }
    at(unit).gradients = Gradients::open;
    actions_.push_back({UnitStep::make_gradients, unit});
}

void UnitOrder::start_bucket()
{
    if (bucket_.empty()) { return; }
    if (layout_.shards_gradients()) { wait_reducing(); }
    for (const std::int64_t unit : bucket_)
    {
        at(unit).gradients = Gradients::reducing;
        actions_.push_back({UnitStep::reduce_start, unit});
        reducing_.push_back(unit);
    }
    bucket_.clear();
    bucket_bytes_ = 0;
}

void UnitOrder::wait_reducing()
{
    for (const std::int64_t unit : reducing_)
    {
        at(unit).gradients = Gradients::none;
        actions_.push_back({UnitStep::reduce_wait, unit});
    }
    reducing_.clear();
}

const std::vector<UnitAction>& UnitOrder::before()
{
    EXPECT(next_ < uses_.size());
    actions_.clear();
    for (const std::int64_t unit : use(next_).parameters)
    {
        start_gather(unit);
        if (at(unit).gathered != Gathered::started) { continue; }
        at(unit).gathered = Gathered::yes;
        actions_.push_back({UnitStep::gather_wait, unit});
    }
    if (layout_.prefetch == Prefetch::on && next_ + 1 < uses_.size())
    {
        for (const std::int64_t unit : use(next_ + 1).parameters) { start_gather(unit); }
    }
    for (const std::int64_t unit : use(next_).gradients) { open_gradients(unit); }
    return actions_;
}

bool UnitOrder::is_read_soon(std::int64_t unit) const
{
    // What the use after next reads would be gathered again while the next one computes: it stays in the same room.
    const std::size_t reach = layout_.prefetch == Prefetch::on ? 2 : 1;
    for (std::size_t number = next_ + 1; number <= next_ + reach && number < uses_.size(); ++number)
    {
        if (contains(use(number).parameters, unit)) { return true; }
    }
    return false;
}

const std::vector<UnitAction>& UnitOrder::after()
{
    EXPECT(next_ < uses_.size());
    actions_.clear();
    const UnitUse& ended = use(next_);
    for (const std::int64_t unit : ended.parameters)
    {
        if (at(unit).gathered != Gathered::yes || is_read_soon(unit)) { continue; }
        at(unit).gathered = Gathered::no;
        actions_.push_back({UnitStep::drop_parameters, unit});
    }
    for (const std::int64_t unit : ended.completes)
    {
        --at(unit).left;
        if (!layout_.shards_gradients() && at(unit).left > 0) { continue; }
        at(unit).gradients = Gradients::in_bucket;
        bucket_.push_back(unit);
        bucket_bytes_ += at(unit).bytes;
    }
    if (bucket_bytes_ >= layout_.bucket_bytes) { start_bucket(); }
    ++next_;
    return actions_;
}

const std::vector<UnitAction>& UnitOrder::finish()
{
    EXPECT(next_ == uses_.size());
    actions_.clear();
    start_bucket();
    wait_reducing();
    reset();
    return actions_;
}

}  // namespace plimsoll
