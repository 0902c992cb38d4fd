#include "engine/recorder.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

struct Place
{
    StepRecorder* recorder = nullptr;
    PlanOp op = PlanOp::state;
    std::int64_t layer = -1;
    StepPhase phase = StepPhase::start_up;
    std::int64_t micro_batch = -1;
};
thread_local Place place;

}  // namespace

MemoryTag memory_tag_of(MemoryUse use)
{
    switch (use)
    {
        case MemoryUse::parameters: return MemoryTag::parameters;
        case MemoryUse::gradients: return MemoryTag::gradients;
        case MemoryUse::optimizer: return MemoryTag::optimizer;
        case MemoryUse::activations: return MemoryTag::activations;
        case MemoryUse::loss: return MemoryTag::loss;
        case MemoryUse::communication: return MemoryTag::communication;
        case MemoryUse::transient: return MemoryTag::transient;
    }
    return MemoryTag::other;
}

StepEvent& StepRecorder::append(EventKind kind)
{
    Note note;
    note.event.kind = kind;
    note.event.op = place.op;
    note.event.layer = place.layer;
    note.event.phase = place.phase;
    note.event.micro_batch = place.micro_batch;
    notes_.push_back(note);
    return notes_.back().event;
}

std::int64_t StepRecorder::allocated(std::int64_t bytes)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    append(EventKind::alloc).bytes = bytes;
    begun_.push_back(notes_.size() - 1);
    notes_.back().block = first_block_ + static_cast<std::int64_t>(begun_.size()) - 1;
    return notes_.back().block;
}

void StepRecorder::named(std::int64_t block, const char* name, MemoryUse use)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    if (block < first_block_) { return; }
    StepEvent& event = notes_[begun_[static_cast<std::size_t>(block - first_block_)]].event;
    event.name = name;
    event.category = use;
    event.op = place.op;
    event.layer = place.layer;
    event.micro_batch = place.micro_batch;
}

void StepRecorder::freed(std::int64_t block)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    if (block < first_block_) { return; }
    append(EventKind::free);
    notes_.back().block = block;
}

std::int64_t StepRecorder::started(CollectiveKind kind, GroupKind group, std::int64_t bytes)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    StepEvent& event = append(EventKind::start);
    event.collective = kind;
    event.group = group;
    event.bytes = bytes;
    event.id = static_cast<std::int64_t>(started_.size());
    started_.push_back(notes_.size() - 1);
    return first_collective_ + event.id;
}

void StepRecorder::waited(std::int64_t collective)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    if (collective < first_collective_) { return; }
    const StepEvent begun = notes_[started_[static_cast<std::size_t>(collective - first_collective_)]].event;
    StepEvent& event = append(EventKind::wait);
    event.collective = begun.collective;
    event.group = begun.group;
    event.bytes = begun.bytes;
    event.id = begun.id;
}

void StepRecorder::scope_begins()
{
    const std::lock_guard<std::mutex> lock(mutex_);
    append(EventKind::workspace);
    notes_.back().kind = Note::Kind::scope_begin;
}

void StepRecorder::scope_ends()
{
    const std::lock_guard<std::mutex> lock(mutex_);
    append(EventKind::workspace);
    notes_.back().kind = Note::Kind::scope_end;
}

std::vector<StepEvent> StepRecorder::take()
{
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<StepEvent> events;
    std::int64_t unnamed = 0, most = 0;
    for (const Note& note : notes_)
    {
        if (note.kind == Note::Kind::scope_begin) { most = unnamed; }
        if (note.kind == Note::Kind::scope_end && most > 0)
        {
            events.push_back(note.event);
            events.back().name = "measured";
            events.back().bytes = most;
            most = unnamed;
        }
        if (note.kind != Note::Kind::event) { continue; }
        if (note.block < 0)
        {
            events.push_back(note.event);
            continue;
        }
        const StepEvent& begun = notes_[begun_[static_cast<std::size_t>(note.block - first_block_)]].event;
        const bool begins = note.event.kind == EventKind::alloc;
        if (*begun.name == '\0')
        {
            unnamed += begins ? begun.bytes : -begun.bytes;
            most = std::max(most, unnamed);
            continue;
        }
        events.push_back(begun);
        events.back().kind = note.event.kind;
        events.back().phase = note.event.phase;
    }
    first_block_ += static_cast<std::int64_t>(begun_.size());
    begun_.clear();
    notes_.clear();
    first_collective_ += static_cast<std::int64_t>(started_.size());
    started_.clear();
    return events;
}

StepRecorder* thread_recorder() { return place.recorder; }

ScopedRecording::ScopedRecording(StepRecorder& recorder)
{
    EXPECT(place.recorder == nullptr);
    place.recorder = &recorder;
}

ScopedRecording::~ScopedRecording() { place.recorder = nullptr; }

OpScope::OpScope(PlanOp op, std::int64_t layer)
{
    outer_op_ = std::exchange(place.op, op);
    outer_layer_ = std::exchange(place.layer, layer);
    if (place.recorder != nullptr) { place.recorder->scope_begins(); }
}

OpScope::~OpScope()
{
    if (place.recorder != nullptr) { place.recorder->scope_ends(); }
    place.op = outer_op_;
    place.layer = outer_layer_;
}

void set_recorded_phase(StepPhase phase, std::int64_t micro_batch)
{
    place.phase = phase;
    place.micro_batch = micro_batch;
}

}  // namespace plimsoll
