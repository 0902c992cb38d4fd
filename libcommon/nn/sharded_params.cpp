#include "nn/sharded_params.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/TensorOptions.h>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "nn/cpu_allocator.hpp"
#include "nn/kernels/parallel.hpp"
#include "plan/unit_order.hpp"

namespace plimsoll::nn
{
namespace
{

MemoryTag tag_of(FlatState state)
{
    switch (state)
    {
        case FlatState::params: return MemoryTag::parameters;
        case FlatState::grads: return MemoryTag::gradients;
        default: return MemoryTag::optimizer;
    }
}

const char* name_of(FlatState state)
{
    switch (state)
    {
        case FlatState::params: return "parameters";
        case FlatState::grads: return "gradients";
        default: return "optimizer moments";
    }
}

/// Fills the box of one tensor, row by row of its last dim; `values` is the local view's storage in C order of `local_shape`.
template<class T>
void fill_box(const FlatTensor& tensor, const CounterRng& rng, T* values)
{
    const TensorSpec& spec = tensor.spec;
    const std::int64_t dims = static_cast<std::int64_t>(spec.shape.size());
    const std::int64_t row = dims == 0 ? 1 : tensor.box.shape.back();
    const std::int64_t local_row = dims == 0 ? 1 : tensor.local_shape.back();
    const std::int64_t rows = row == 0 ? 0 : tensor.box.num_elements() / row;
    const auto fill_rows = [&](std::int64_t begin, std::int64_t end)
    {
        for (std::int64_t r = begin; r < end; ++r)
        {
            // Row r of the box -> linear indices of its first element, in the global tensor and in the local view.
            std::int64_t rest = r, global = 0, local = 0, global_stride = 1, local_stride = 1;
            if (dims > 0)
            {
                global = tensor.box.offset.back();
                global_stride = spec.shape.back();
                local_stride = local_row;
            }
            for (std::int64_t d = dims - 2; d >= 0; --d)
            {
                const auto i = static_cast<std::size_t>(d);
                const std::int64_t index = rest % tensor.box.shape[i];
                rest /= tensor.box.shape[i];
                global += (tensor.box.offset[i] + index) * global_stride;
                local += index * local_stride;
                global_stride *= spec.shape[i];
                local_stride *= tensor.local_shape[i];
            }
            rng.fill_normal(static_cast<std::uint64_t>(global), row, spec.init_std, values + local);
        }
    };
    const std::int64_t rows_per_task = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, row));
    kernels::parallel_for(rows, rows_per_task, fill_rows);
}

}  // namespace

ShardedParams::ShardedParams(const ModelSpec& model, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                             at::ScalarType dtype, MemoryTracker& tracker)
    : layout_(layout), coordinate_(coordinate), dtype_(dtype),
      flat_(make_flat_layout(model, layout, coordinate, static_cast<std::int64_t>(c10::elementSize(dtype))))
{
    EXPECT(dtype == at::kFloat || dtype == at::kDouble);
    const auto options = at::TensorOptions().dtype(dtype);
    kept_.resize(num_flat_states);
    whole_.resize(num_flat_states);
    for (int s = 0; s < num_flat_states; ++s)
    {
        const auto state = static_cast<FlatState>(s);
        for (const FlatUnit& unit : flat_.units)
        {
            const bool shard = keeps_shard(state, unit);
            const std::int64_t elements = shard ? unit.shard_elements : unit.num_elements;
            memory_.emplace_back(elements * flat_.element_bytes, tag_of(state), tracker, name_of(state));
            kept_[static_cast<std::size_t>(s)].push_back(at::from_blob(memory_.back().data(), {elements}, options));
            const bool is_whole = !shard || tag_of(state) == MemoryTag::optimizer;
            whole_[static_cast<std::size_t>(s)].push_back(is_whole ? kept_[static_cast<std::size_t>(s)].back() : at::Tensor());
        }
    }
    for (std::size_t u = 0; u < flat_.units.size(); ++u)
    {
        for (std::size_t t = 0; t < flat_.units[u].tensors.size(); ++t)
        {
            Place place;
            place.unit = static_cast<std::int64_t>(u);
            place.tensor = static_cast<std::int64_t>(t);
            units_[flat_.units[u].tensors[t].spec.name] = place;
        }
    }
}

const ShardedParams::Place& ShardedParams::place(const std::string& name) const
{
    const auto found = units_.find(name);
    if (found == units_.end()) { throw InternalError("this rank holds no tensor '" + name + "'"); }
    return found->second;
}

const FlatTensor& ShardedParams::flat_tensor(const std::string& name) const
{
    const Place& where = place(name);
    return flat_.units[static_cast<std::size_t>(where.unit)].tensors[static_cast<std::size_t>(where.tensor)];
}

bool ShardedParams::keeps_shard(FlatState state, const FlatUnit& unit) const
{
    switch (state)
    {
        case FlatState::params: return is_gathered(unit, layout_, flat_.element_bytes);
        case FlatState::grads: return layout_.shards_gradients();
        default: return is_sharded(layout_, StateKind::optimizer);
    }
}

const at::Tensor& ShardedParams::buffer(FlatState state, std::int64_t unit) const
{
    const at::Tensor& whole = whole_[static_cast<std::size_t>(state)].at(static_cast<std::size_t>(unit));
    EXPECT(whole.defined());
    return whole;
}

at::Tensor ShardedParams::owned(FlatState state, std::int64_t unit) const
{
    const FlatUnit& of = flat_.units[static_cast<std::size_t>(unit)];
    const at::Tensor& kept = kept_[static_cast<std::size_t>(state)][static_cast<std::size_t>(unit)];
    if (!is_sharded(layout_, StateKind::optimizer) || keeps_shard(state, of)) { return kept; }
    return kept.narrow(0, shard_index(layout_, coordinate_) * of.shard_elements, of.shard_elements);
}

bool ShardedParams::comes_and_goes(FlatState state, std::int64_t unit) const
{
    EXPECT(state == FlatState::params || state == FlatState::grads);
    return keeps_shard(state, flat_.units[static_cast<std::size_t>(unit)]);
}

void ShardedParams::make(FlatState state, std::int64_t unit)
{
    const FlatUnit& of = flat_.units[static_cast<std::size_t>(unit)];
    at::Tensor& whole = whole_[static_cast<std::size_t>(state)][static_cast<std::size_t>(unit)];
    EXPECT(comes_and_goes(state, unit) && !whole.defined());
    const bool gradients = state == FlatState::grads;
    whole = at::empty({of.num_elements}, at::TensorOptions().dtype(dtype_));
    name_tensor(whole, unit_kind_name(of.kind), gradients ? MemoryUse::gradients : MemoryUse::parameters);
    if (gradients) { whole.zero_(); }
}

void ShardedParams::drop(FlatState state, std::int64_t unit)
{
    EXPECT(comes_and_goes(state, unit));
    whole_[static_cast<std::size_t>(state)][static_cast<std::size_t>(unit)] = at::Tensor();
}

at::Tensor ShardedParams::view(FlatState state, const std::string& name) const
{
    const FlatTensor& tensor = flat_tensor(name);
    return buffer(state, place(name).unit).narrow(0, tensor.offset, tensor.num_elements()).view(tensor.local_shape);
}

at::Tensor ShardedParams::fused_view(FlatState state, const std::vector<std::string>& names) const
{
    EXPECT(!names.empty());
    const FlatTensor& first = flat_tensor(names.front());
    std::vector<std::int64_t> shape = first.local_shape;
    std::int64_t end = first.offset + first.num_elements();
    for (std::size_t i = 1; i < names.size(); ++i)
    {
        const FlatTensor& next = flat_tensor(names[i]);
        EXPECT(place(names[i]).unit == place(names.front()).unit && next.offset == end);
        EXPECT(next.local_shape.size() == shape.size() &&
               std::equal(shape.begin() + 1, shape.end(), next.local_shape.begin() + 1));
        shape[0] += next.local_shape[0];
        end += next.num_elements();
    }
    return buffer(state, place(names.front()).unit).narrow(0, first.offset, end - first.offset).view(shape);
}

void ShardedParams::initialize(std::uint64_t seed)
{
    for (std::int64_t u = 0; u < num_units(); ++u)
    {
        const FlatUnit& unit = flat_.units[static_cast<std::size_t>(u)];
        if (!comes_and_goes(FlatState::params, u))
        {
            initialize_unit(unit, seed);
            continue;
        }
        make(FlatState::params, u);
        whole_[static_cast<std::size_t>(FlatState::params)][static_cast<std::size_t>(u)].zero_();  // padding
        initialize_unit(unit, seed);
        owned(FlatState::params, u)
            .copy_(buffer(FlatState::params, u)
                       .narrow(0, shard_index(layout_, coordinate_) * unit.shard_elements, unit.shard_elements));
        drop(FlatState::params, u);
    }
}

void ShardedParams::initialize_unit(const FlatUnit& unit, std::uint64_t seed)
{
    for (const FlatTensor& tensor : unit.tensors)
    {
        at::Tensor values = view(FlatState::params, tensor.spec.name);
        if (tensor.spec.init == InitKind::zeros) { values.zero_(); }
        else if (tensor.spec.init == InitKind::ones) { values.fill_(1); }
        else
        {
            const CounterRng rng(seed, RngPurpose::init, hash_name(tensor.spec.name));
            if (dtype_ == at::kFloat) { fill_box(tensor, rng, values.data_ptr<float>()); }
            else { fill_box(tensor, rng, values.data_ptr<double>()); }
        }
    }
}

void ShardedParams::zero_grads()
{
    for (const at::Tensor& grads : kept_[static_cast<std::size_t>(FlatState::grads)]) { grads.zero_(); }
}

}  // namespace plimsoll::nn
