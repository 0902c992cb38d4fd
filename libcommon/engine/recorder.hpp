#pragma once
/// Notes what a rank's control thread really does in a step, as events of the kind that the plan predicts.
///
/// Attached to a thread by ScopedRecording; scopes say which operation, layer and micro-batch the thread is in. Without a
/// recording all of it costs a look at a thread-local pointer. Blocks may be freed by any thread.
///
///     StepRecorder recorder;
///     { ScopedRecording recording(recorder); ... one step ... }
///     std::vector<StepEvent> events = recorder.take();

#include <cstdint>
#include <mutex>
#include <vector>

#include "mem/tracking.hpp"
#include "plan/step_event.hpp"

namespace plimsoll
{

/// The tag under which the counting allocator books what the plan calls by this category.
MemoryTag memory_tag_of(MemoryUse use);

/// Thread-safe.
class StepRecorder
{
  public:
    /// A block begins; returns its number for the calls below.
    std::int64_t allocated(std::int64_t bytes);
    /// The tensor in it gets its name, in the operation that the calling thread is in.
    void named(std::int64_t block, const char* name, MemoryUse use);
    void freed(std::int64_t block);
    std::int64_t started(CollectiveKind kind, GroupKind group, std::int64_t bytes);
    void waited(std::int64_t collective);
    void scope_begins();
    void scope_ends();

    /// What was noted, in order, and forgets it: named tensors, collectives, and for each operation with unnamed blocks one
    /// workspace event with the most that was there at once. Blocks of before are not followed any more.
    std::vector<StepEvent> take();

  private:
    struct Note
    {
        enum class Kind : std::uint8_t { event, scope_begin, scope_end };
        Kind kind = Kind::event;
        StepEvent event;
        std::int64_t block = -1;  ///< of alloc and free
    };

    StepEvent& append(EventKind kind);

    std::mutex mutex_;
    std::vector<Note> notes_;
    std::vector<std::size_t> begun_;  ///< block -> its note
    std::int64_t first_block_ = 0;    ///< blocks before were taken
    std::vector<std::size_t> started_;   ///< collective -> its note
    std::int64_t first_collective_ = 0;  ///< those before were taken
};

/// The recorder of this thread, or nullptr.
StepRecorder* thread_recorder();

/// Attaches a recorder to this thread. @pre none is attached; `recorder` outlives every block that begins meanwhile
class ScopedRecording
{
  public:
    explicit ScopedRecording(StepRecorder& recorder);
    ~ScopedRecording();
    ScopedRecording(const ScopedRecording&) = delete;
    ScopedRecording& operator=(const ScopedRecording&) = delete;
};

/// This thread works on an operation. A layer of -1: outside blocks.
class OpScope
{
  public:
    explicit OpScope(PlanOp op, std::int64_t layer = -1);
    ~OpScope();
    OpScope(const OpScope&) = delete;
    OpScope& operator=(const OpScope&) = delete;

  private:
    PlanOp outer_op_ = PlanOp::state;
    std::int64_t outer_layer_ = -1;
};

/// This thread works on a micro-batch (-1: on none), in a phase.
void set_recorded_phase(StepPhase phase, std::int64_t micro_batch);

}  // namespace plimsoll
