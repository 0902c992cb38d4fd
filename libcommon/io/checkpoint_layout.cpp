#include "io/checkpoint_layout.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

void append_state(const FlatLayout& flat, const ParallelLayout& layout, const MeshCoordinate& coordinate, const StateType& type,
                  std::vector<CheckpointBox>& boxes)
{
    const StateKind kind = type.state == CheckpointState::model ? StateKind::model : StateKind::optimizer;
    for (const FlatUnit& unit : flat.units)
    {
        for (const FlatTensor& tensor : unit.tensors)
        {
            CheckpointBox held;
            held.tensor.state = type.state;
            held.tensor.name = tensor.spec.name;
            held.tensor.dtype = type.dtype;
            held.tensor.shape = tensor.spec.shape;
            for (OwnedBox& owned : boxes_of(unit, tensor, layout, coordinate, kind))
            {
                held.box = std::move(owned.box);
                boxes.push_back(held);
            }
        }
    }
}

}  // namespace

std::vector<std::vector<CheckpointBox>> held_boxes(const ModelSpec& model, const ParallelLayout& layout,
                                                   const std::vector<StateType>& states)
{
    const auto params = std::find_if(states.begin(), states.end(),
                                     [](const StateType& type) { return type.state == CheckpointState::model; });
    EXPECT(params != states.end());
    const DeviceMesh mesh(layout);
    std::vector<std::vector<CheckpointBox>> held(static_cast<std::size_t>(mesh.world()));
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank)
    {
        const MeshCoordinate coordinate = mesh.coordinate(rank);
        const FlatLayout flat = make_flat_layout(model, layout, coordinate, dtype_bytes(params->dtype));
        for (const StateType& type : states)
        {
            append_state(flat, layout, coordinate, type, held[static_cast<std::size_t>(rank)]);
        }
    }
    return held;
}

}  // namespace plimsoll
