#include "nn/train_state.hpp"

#include <map>
#include <set>

#include <fmt/ranges.h>

#include "base/error.hpp"
#include "engine/gradient_reducer.hpp"
#include "layout/precision.hpp"
#include "nn/ops/tensor_view.hpp"

namespace plimsoll::nn
{
namespace
{

struct StatePair
{
    FlatState memory;
    CheckpointState file;
    StateKind kind;
};

/// The model is saved as its master: bf16 and fp32 runs write the same file, and either continues the other's.
std::vector<StatePair> saved_states(const ShardedParams& params)
{
    const StateKind model = params.keeps_master() ? StateKind::optimizer : StateKind::model;
    return {{FlatState::master, CheckpointState::model, model},
            {FlatState::exp_avg, CheckpointState::exp_avg, StateKind::optimizer},
            {FlatState::exp_avg_sq, CheckpointState::exp_avg_sq, StateKind::optimizer}};
}

Dtype dtype_of(const ShardedParams& params) { return params.sum_dtype() == at::kDouble ? Dtype::f64 : Dtype::f32; }

/// Calls visit(checkpoint tensor, box, address of the box's first element) for all boxes of this rank. Boxes of boxes_of()
/// are contiguous in the flat buffer.
template<class Visit>
void for_each_box(const ShardedParams& params, Visit&& visit)
{
    const std::int64_t element_bytes = sum_bytes(params.flat().element_bytes);
    for (const StatePair& state : saved_states(params))
    {
        for (std::int64_t u = 0; u < params.num_units(); ++u)
        {
            const at::Tensor kept = is_sharded(params.layout(), state.kind) ? params.owned(state.memory, u) : params.buffer(state.memory, u);
            char* base = static_cast<char*>(kept.data_ptr());
            for (const FlatTensor& tensor : params.flat().units[static_cast<std::size_t>(u)].tensors)
            {
                CheckpointTensor described;
                described.state = state.file;
                described.name = tensor.spec.name;
                described.dtype = dtype_of(params);
                described.shape = tensor.spec.shape;
                for (const OwnedBox& owned : boxes_of(params.flat(), params.layout(), params.coordinate(),
                                                      tensor.spec.name, state.kind))
                {
                    visit(described, owned.box, static_cast<void*>(base + owned.local_offset * element_bytes));
                }
            }
        }
    }
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void check_tensors(const CheckpointReader& reader, const ModelSpec& model)
{
    std::set<std::string> known;
    for (const TensorSpec& tensor : canonical_tensors(model)) { known.insert(tensor.name); }
    for (const CheckpointTensor& stored : reader.tensors())
    {
        VALIDATE(known.count(stored.name) != 0, FormatError,
                 "tensor '{}' of the checkpoint is not one of the model's (a checkpoint of another model?)", stored.name);
    }
}

}  // namespace

std::vector<CheckpointBox> held_boxes(const ShardedParams& params)
{
    std::vector<CheckpointBox> boxes;
    for_each_box(params,
                 [&](const CheckpointTensor& tensor, const Box& box, void*)
                 {
                     CheckpointBox entry;
                     entry.tensor = tensor;
                     entry.box = box;
                     boxes.push_back(std::move(entry));
                 });
    return boxes;
}

SavedStep save_train_state(const std::string& root, const CheckpointMeta& meta, const ShardedParams& params,
                           Communicator& world)
{
    params.check_master();
    CheckpointWriter writer(root, meta, held_boxes(params), world);
    for_each_box(params,
                 [&](const CheckpointTensor& tensor, const Box& box, void* data)
                 {
                     if (writer.assigned(tensor.state, tensor.name, box))
                     {
                         writer.write(tensor.state, tensor.name, box, data);
                     }
                 });
    return writer.commit();
}

void load_train_state(const CheckpointReader& reader, const ModelSpec& model, ShardedParams& params, RankGroups& groups)
{
    check_tensors(reader, model);
    std::set<std::pair<CheckpointState, std::string>> checked;
    std::map<std::pair<CheckpointState, std::string>, CheckpointTensor> stored;
    for (const CheckpointTensor& tensor : reader.tensors()) { stored[{tensor.state, tensor.name}] = tensor; }
    for_each_box(params,
                 [&](const CheckpointTensor& tensor, const Box& box, void* data)
                 {
                     if (checked.insert({tensor.state, tensor.name}).second)
                     {
                         const auto entry = stored.find({tensor.state, tensor.name});
                         VALIDATE(entry != stored.end(), FormatError, "tensor '{}' of '{}' is missing in the checkpoint",
                                  tensor.name, checkpoint_state_path(tensor.state));
                         const CheckpointTensor* found = &entry->second;
                         VALIDATE(found->shape == tensor.shape, FormatError,
                                  "tensor '{}' has shape {} in the checkpoint, the model needs {}", tensor.name,
                                  shape_text(found->shape), shape_text(tensor.shape));
                         VALIDATE(found->dtype == tensor.dtype, FormatError,
                                  "tensor '{}' is {} in the checkpoint, the run needs {} (precision changed?)", tensor.name,
                                  dtype_name(found->dtype), dtype_name(tensor.dtype));
                     }
                     reader.read(tensor.state, tensor.name, box, data);
                 });
    share_master(params, groups);
}

void share_master(ShardedParams& params, RankGroups& groups)
{
    if (!params.keeps_master()) { return; }
    params.round_master();
    if (!is_sharded(params.layout(), StateKind::optimizer)) { return; }
    GradientReducer gatherer(params.flat(), params.layout(), groups);
    Stream stream;
    for (std::int64_t u = 0; u < params.num_units(); ++u)
    {
        if (params.comes_and_goes(FlatState::params, u)) { continue; }
        gatherer.start_gather(u, buffer_view(params.owned(FlatState::params, u)), buffer_view(params.buffer(FlatState::params, u)),
                              stream);
        gatherer.wait_gather(u, stream);
    }
}

}  // namespace plimsoll::nn
