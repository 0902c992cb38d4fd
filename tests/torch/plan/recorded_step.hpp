#pragma once
// A rank's second step and a batch of validation, recorded, and its comparison with what the plan said.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "comm/metered_communicator.hpp"
#include "comm/thread_communicator.hpp"
#include "engine/recorder.hpp"
#include "engine/recording_communicator.hpp"
#include "engine/replica_check.hpp"
#include "nn/determinism.hpp"
#include "nn/ops/tensor_view.hpp"
#include "plan/communication_plan.hpp"
#include "plan/memory_plan.hpp"
#include "support/layout_table.hpp"
#include "torch/model/small_run.hpp"

namespace plimsoll::test
{

using namespace plimsoll::nn;

constexpr std::int64_t seq_len = 16;

struct Recorded
{
    std::vector<StepEvent> step;
    std::vector<StepEvent> validation;
    std::vector<StepEvent> replica_check;
    std::int64_t before = 0;  ///< bytes in use when the step began
    std::int64_t after = 0;
    std::int64_t peak = 0;
    std::map<std::string, CommunicationMeter> sent;
    std::array<std::int64_t, num_memory_tags> at_peak{};
};

/// One batch of validation on this rank's stage.
inline void evaluate_batch(Model& model, ShardedParams& params, RankGroups& groups, const OpContext& ctx, TokenBatch& batch)
{
    set_recorded_phase(StepPhase::validation, 0);
    Stream stream;
    GradientReducer gatherer(params.flat(), params.layout(), groups);
    UnitRunner units(params, gatherer,
                     UnitOrder(params.flat(), params.layout(),
                               uses_of_validation(params.flat(), params.layout(), groups.pp->rank())),
                     stream);
    const std::int64_t pp = groups.pp->size();
    const ChunkPlacement placement = placement_of(params.layout().schedule);
    at::Tensor x_ND;
    for (std::int64_t c = 0; c < params.layout().virtual_stages; ++c)
    {
        const StageChunk& chunk = model.chunks()[static_cast<std::size_t>(c)];
        const std::int64_t here = virtual_stage(placement, pp, groups.pp->rank(), c);
        if (chunk.before == Neighbour::elsewhere)
        {
            const OpScope scope(PlanOp::pipeline);
            x_ND = model.make_received(Received::activation, ctx.stream_tokens(), c);
            groups.pp->recv(buffer_view(x_ND), chunk_place(placement, pp, here - 1).stage, stream).wait(stream);
        }
        TrainForward done = model.evaluate_chunk(ctx, token_tensors(batch), std::move(x_ND), &units, c);
        const OpScope scope(PlanOp::pipeline);
        x_ND = std::move(done.y_ND);
        if (chunk.behind != Neighbour::elsewhere) { continue; }
        groups.pp->send(buffer_view(x_ND), chunk_place(placement, pp, here + 1).stage, stream).wait(stream);
        x_ND = at::Tensor();
    }
}

enum class Documents
{
    joined,
    whole,  ///< document masks, each sequence is a document
    apart   ///< document masks, documents of 1 to 4 tokens
};

inline void read_samples(const StepInputs& inputs, Documents documents, std::int64_t first, std::int64_t num, TokenBatch& batch)
{
    synthetic_samples(inputs.model.vocab, inputs.policies.seq_len, first, num, batch);
    if (documents == Documents::joined) { return; }
    const std::int64_t length = inputs.policies.seq_len;
    for (std::int64_t n = 0; n < num * length; ++n)
    {
        const std::int64_t in_sample = n % length;
        const bool cuts = documents == Documents::apart && in_sample % 4 == 1 + (first + n / length) % 3;
        if (in_sample == 0 || cuts) { batch.document_starts.push_back(n); }
    }
    batch.document_starts.push_back(num * length);
}

/// The second step of a run, recorded, and a batch of validation.
inline Recorded record_rank(Communicator& world, const StepInputs& inputs, Documents documents)
{
    const c10::AutoGradMode no_autograd(false);
    at::set_num_threads(static_cast<int>(inputs.policies.threads));
    StepRecorder recorder;
    RankMemoryScope memory;
    RankGroups groups = make_rank_groups(world, inputs.layout, inputs.model.kv_heads);
    CommunicationMeters meters(groups);
    record_collectives(groups);
    const at::ScalarType dtype = inputs.policies.dtype == Dtype::f64    ? at::kDouble
                                 : inputs.policies.dtype == Dtype::bf16 ? at::kBFloat16
                                                                        : at::kFloat;
    ShardedParams params(inputs.model, inputs.layout, groups.coordinate, dtype, memory.tracker());
    params.initialize(9);
    Model model(inputs.model, params, inputs.policies.seq_len, inputs.policies.loss_chunks);
    StepSettings settings;
    settings.seq_len = inputs.policies.seq_len;
    settings.micro_batch = inputs.layout.micro_batch;
    settings.global_batch = inputs.layout.global_batch;
    settings.schedule.kind = ScheduleKind::constant;
    settings.schedule.lr = 1e-3;
    settings.schedule.total_steps = 10;
    settings.dropout.hidden = inputs.policies.hidden_dropout;
    settings.dropout.embedding = inputs.policies.hidden_dropout;
    settings.document_masks = documents != Documents::joined;
    TrainStep step(model, params, groups, settings, [&](std::int64_t first, std::int64_t num, TokenBatch& batch)
                   { read_samples(inputs, documents, first, num, batch); });
    const auto run = [&](std::int64_t number)
    { step.run(number, (number - 1) * settings.global_batch, number, {[] { return false; }, 0.0}); };
    run(1);

    Recorded recorded;
    recorded.before = memory.tracker().current();
    memory.tracker().reset_peak();
    meters.take();
    {
        const ScopedRecording recording(recorder);
        run(2);
    }
    recorded.sent = meters.take();
    recorded.after = memory.tracker().current();
    recorded.peak = memory.tracker().peak();
    for (int tag = 0; tag < num_memory_tags; ++tag)
    {
        recorded.at_peak[static_cast<std::size_t>(tag)] = memory.tracker().at_peak(static_cast<MemoryTag>(tag));
    }
    recorded.step = recorder.take();

    Stream stream;
    OpContext ctx;
    ctx.stream = &stream;
    ctx.tp = groups.tp.get();
    ctx.batch = inputs.policies.eval_micro_batch;
    ctx.seq_len = inputs.policies.seq_len;
    ctx.cuts_tokens = inputs.layout.cuts_tokens(ctx.tokens());
    TokenBatch batch;
    read_samples(inputs, documents, 0, ctx.batch, batch);
    ctx.document_starts = batch.document_starts.empty() ? nullptr : &batch.document_starts;
    {
        const ScopedRecording recording(recorder);
        evaluate_batch(model, params, groups, ctx, batch);
    }
    recorded.validation = recorder.take();
    ReplicaCheck replicas(params.flat(), inputs.layout, groups);
    {
        const ScopedRecording recording(recorder);
        replicas.run(2, [&](std::int64_t unit) { return held_params(params, unit); }, stream);
    }
    recorded.replica_check = recorder.take();
    return recorded;
}

inline bool is_compared(const StepEvent& event) { return event.kind != EventKind::compute && event.kind != EventKind::workspace; }

/// What must be equal, as text: names and sizes of tensors; kind, group, size and number of collectives.
inline std::string comparable(const StepEvent& event)
{
    if (event.kind == EventKind::alloc || event.kind == EventKind::free)
    {
        return event_text(event) + " as " + memory_use_name(event.category);
    }
    const char* op = event.kind == EventKind::start ? plan_op_name(event.op) : "";  // whoever waits
    return fmt::format("{} {} {} over {} ({} B) #{}", event_kind_name(event.kind), op, collective_kind_name(event.collective),
                       group_kind_name(event.group), event.bytes, event.id);
}

inline std::vector<std::string> comparables(const std::vector<StepEvent>& events)
{
    std::vector<std::string> texts;
    for (const StepEvent& event : events)
    {
        if (is_compared(event)) { texts.push_back(comparable(event)); }
    }
    return texts;
}

/// The first difference with its surroundings; empty when there is none.
inline std::string first_difference(const std::vector<StepEvent>& planned_events, const std::vector<StepEvent>& recorded_events)
{
    const std::vector<std::string> planned = comparables(planned_events), recorded = comparables(recorded_events);
    const std::size_t both = std::min(planned.size(), recorded.size());
    std::size_t at = 0;
    while (at < both && planned[at] == recorded[at]) { ++at; }
    if (at == planned.size() && at == recorded.size()) { return ""; }
    std::string text = fmt::format("event {} of {} planned, {} recorded", at, planned.size(), recorded.size());
    for (std::size_t i = at > 3 ? at - 3 : 0; i < at + 4; ++i)
    {
        text += fmt::format("\n  {:<70} | {}", i < planned.size() ? planned[i] : "-", i < recorded.size() ? recorded[i] : "-");
    }
    return text;
}

/// Workspace that exceeds its bound or was not foreseen; empty when there is none.
inline std::string workspace_fault(const std::vector<StepEvent>& planned, const std::vector<StepEvent>& recorded)
{
    for (const StepEvent& used : recorded)
    {
        if (used.kind != EventKind::workspace) { continue; }
        std::int64_t bound = 0;
        for (const StepEvent& event : planned)
        {
            const bool same = event.kind == EventKind::workspace && event.op == used.op && event.phase == used.phase &&
                              event.layer == used.layer && event.micro_batch == used.micro_batch;
            if (same) { bound = std::max(bound, event.bytes); }
        }
        if (used.bytes > bound) { return fmt::format("{} exceeds {} B", event_text(used), bound); }
    }
    return "";
}

inline std::string describe(const ParallelLayout& layout, std::int64_t rank)
{
    return fmt::format("{}, {} x {} accumulated, bucket {}, resident {}, rank {}", layout_text(layout), layout.micro_batch,
                       layout.accumulation(), layout.bucket_bytes, layout.resident_bytes, rank);
}

inline void check_peak(const StepInputs& inputs, const Recorded& recorded)
{
    const RankMemory planned = plan_rank_memory(inputs);
    EXPECT_EQ(recorded.before, planned.start_up_bytes);
    EXPECT_EQ(recorded.after, planned.after_step_bytes);
    EXPECT_LE(recorded.peak, planned.step.bytes);
    EXPECT_GE(static_cast<double>(recorded.peak), 0.98 * static_cast<double>(planned.step.bytes));
    if (recorded.peak != planned.step.bytes) { return; }
    for (int u = 0; u < num_memory_uses; ++u)
    {
        const auto use = static_cast<MemoryUse>(u);
        EXPECT_EQ(recorded.at_peak[static_cast<std::size_t>(memory_tag_of(use))], planned.step.of(use)) << memory_use_name(use);
    }
}

inline void check_sent(const StepInputs& inputs, const Recorded& recorded)
{
    const auto planned = plan_communication(inputs);
    for (const auto& [name, meter] : recorded.sent)
    {
        const auto found = planned.find(name);
        const PlannedCommunication expected = found != planned.end() ? found->second : PlannedCommunication();
        EXPECT_EQ(meter.calls, expected.calls) << name;
        EXPECT_EQ(meter.bytes, expected.bytes) << name;
    }
    for (const auto& [name, expected] : planned) { EXPECT_EQ(recorded.sent.count(name), 1U) << name; }
}

inline void check_layout(StepInputs inputs, Documents documents = Documents::joined)
{
    std::mutex mutex;  // expectations of one rank at a time
    run_ranks(inputs.layout.world(),
              [&](Communicator& world)
              {
                  StepInputs mine = inputs;
                  mine.coordinate = DeviceMesh(inputs.layout).coordinate(world.rank());
                  const Recorded recorded = record_rank(world, mine, documents);
                  const StepProgram program = make_step_program(mine);
                  const std::lock_guard<std::mutex> lock(mutex);
                  const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(mine.layout, world.rank()));
                  EXPECT_EQ(first_difference(program.step, recorded.step), "");
                  EXPECT_EQ(first_difference(program.validation, recorded.validation), "");
                  EXPECT_EQ(first_difference(program.replica_check, recorded.replica_check), "");
                  EXPECT_EQ(workspace_fault(program.step, recorded.step), "");
                  EXPECT_EQ(workspace_fault(program.validation, recorded.validation), "");
                  check_peak(mine, recorded);
                  check_sent(mine, recorded);
              });
}

}  // namespace plimsoll::test
