#pragma once
/// Small checkpoints with known content: each element's bits follow from (step, state, name, global index).

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_box.hpp"

namespace plimsoll::testing
{

inline CheckpointTensor make_tensor(CheckpointState state, std::string name, Dtype dtype, std::vector<std::int64_t> shape)
{
    CheckpointTensor tensor;
    tensor.state = state;
    tensor.name = std::move(name);
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    return tensor;
}

inline Box make_box(std::vector<std::int64_t> offset, std::vector<std::int64_t> shape)
{
    Box box;
    box.offset = std::move(offset);
    box.shape = std::move(shape);
    return box;
}

inline CheckpointBox planned(const CheckpointTensor& tensor, const Box& box)
{
    CheckpointBox result;
    result.tensor = tensor;
    result.box = box;
    return result;
}

inline CheckpointBox planned_whole(const CheckpointTensor& tensor)
{
    return planned(tensor, checkpoint::whole_box(tensor.shape));
}

/// The bytes of a box in C order.
inline std::vector<char> box_content(const CheckpointTensor& tensor, const Box& box, std::int64_t step)
{
    const std::int64_t bytes = dtype_bytes(tensor.dtype);
    const std::uint64_t salt = hash_name(checkpoint_state_path(tensor.state) + ("/" + tensor.name)) + static_cast<std::uint64_t>(step);
    checkpoint::BoxRuns runs(box, checkpoint::whole_box(tensor.shape));
    std::vector<char> data(static_cast<std::size_t>(runs.num_elements() * bytes));
    checkpoint::ElementRun run;
    while (runs.next(run))
    {
        for (std::int64_t k = 0; k < run.count; ++k)
        {
            // Half of the bits are zero, so that the values are finite in every float type.
            const std::uint64_t bits = mix64(static_cast<std::uint64_t>(run.target + k) ^ salt) & 0x3333333333333333ULL;
            std::memcpy(data.data() + (run.source + k) * bytes, &bits, static_cast<std::size_t>(bytes));
        }
    }
    return data;
}

inline CheckpointMeta make_meta(std::int64_t step, const std::vector<std::string>& decayed)
{
    CheckpointMeta meta;
    meta.trainer.step = step;
    meta.trainer.consumed_samples = step * 8;
    meta.trainer.consumed_tokens = step * 8 * 128;
    meta.trainer.seed = 0xFFFFFFFFFFFFFFF7ULL;
    meta.trainer.data_order = "feistel8-v1";
    meta.trainer.plan_hash = "c0ffee";
    meta.trainer.plan = {"order feistel8-v1", "seq-len 8"};
    meta.trainer.stages = {{0, "decaf"}, {1200, "c0ffee"}};
    meta.trainer.tokenizer = "b0b";
    OptimizerGroup group;
    group.name = "decay";
    group.lr = 6e-4;
    group.beta1 = 0.9;
    group.beta2 = 0.95;
    group.eps = 1e-8;
    group.weight_decay = 0.1;
    group.step = step;
    group.tensors = decayed;
    meta.trainer.groups.push_back(group);
    meta.model_config = "{\"model_type\": \"llama\"}";
    meta.model_fingerprint = "f00d";
    meta.layout_note = "tp 1 pp 1 dp 1 zero 0";
    meta.run_ini = "[run]\nname = x\n";
    meta.precision = "fp32";
    return meta;
}

inline std::vector<std::string> tensor_names(const std::vector<CheckpointBox>& boxes)
{
    std::vector<std::string> names;
    for (const CheckpointBox& box : boxes)
    {
        if (std::find(names.begin(), names.end(), box.tensor.name) == names.end()) { names.push_back(box.tensor.name); }
    }
    return names;
}

/// Writes and commits the boxes with their known content.
inline SavedStep save_synthetic(const std::string& root, std::int64_t step, const std::vector<CheckpointBox>& boxes)
{
    CheckpointWriter writer(root, make_meta(step, tensor_names(boxes)), boxes);
    for (const CheckpointBox& box : boxes)
    {
        const std::vector<char> data = box_content(box.tensor, box.box, step);
        writer.write(box.tensor.state, box.tensor.name, box.box, data.data());
    }
    return writer.commit();
}

/// What rank `rank` of `size` holds when boxes are dealt out: every third box on two ranks.
inline std::vector<CheckpointBox> dealt_boxes(const std::vector<CheckpointBox>& boxes, std::int64_t rank, std::int64_t size)
{
    std::vector<CheckpointBox> held;
    for (std::size_t k = 0; k < boxes.size(); ++k)
    {
        const auto number = static_cast<std::int64_t>(k);
        if (number % size == rank || (number % 3 == 0 && (number + 1) % size == rank)) { held.push_back(boxes[k]); }
    }
    return held;
}

/// The same by all ranks of `world`, each with what it holds.
inline SavedStep save_synthetic(const std::string& root, std::int64_t step, const std::vector<CheckpointBox>& held,
                                const std::vector<std::string>& names, Communicator& world, std::int64_t ranks_per_file = 0)
{
    CheckpointWriter writer(root, make_meta(step, names), held, world, ranks_per_file);
    for (const CheckpointBox& box : held)
    {
        if (!writer.assigned(box.tensor.state, box.tensor.name, box.box)) { continue; }
        const std::vector<char> data = box_content(box.tensor, box.box, step);
        writer.write(box.tensor.state, box.tensor.name, box.box, data.data());
    }
    return writer.commit();
}

/// Empty when every tensor of the checkpoint holds its known content, else the first that does not.
inline std::string content_fault(const std::string& step_dir, std::int64_t step)
{
    const CheckpointReader reader(step_dir);
    if (reader.meta().trainer.step != step) { return "step " + std::to_string(reader.meta().trainer.step); }
    for (const CheckpointTensor& tensor : reader.tensors())
    {
        const Box whole = checkpoint::whole_box(tensor.shape);
        const std::vector<char> wanted = box_content(tensor, whole, step);
        std::vector<char> found(wanted.size());
        reader.read(tensor.state, tensor.name, whole, found.data());
        if (found != wanted) { return tensor.name; }
    }
    return "";
}

/// A few tensors of each state, among them a scalar and one without elements; `parts` cuts the first dim of the largest.
inline std::vector<CheckpointBox> small_boxes(std::int64_t parts = 2)
{
    std::vector<CheckpointBox> boxes;
    for (const CheckpointState state : {CheckpointState::model, CheckpointState::exp_avg, CheckpointState::exp_avg_sq})
    {
        const CheckpointTensor table = make_tensor(state, "embed_tokens.weight", Dtype::f32, {12, 5});
        for (std::int64_t k = 0; k < parts; ++k)
        {
            boxes.push_back(planned(table, make_box({k * 12 / parts, 0}, {(k + 1) * 12 / parts - k * 12 / parts, 5})));
        }
        boxes.push_back(planned_whole(make_tensor(state, "layers.0.input_norm.weight", Dtype::f32, {5})));
        boxes.push_back(planned_whole(make_tensor(state, "scale", Dtype::f32, {})));
        boxes.push_back(planned_whole(make_tensor(state, "nothing", Dtype::f32, {0, 16})));
    }
    return boxes;
}

}  // namespace plimsoll::testing
