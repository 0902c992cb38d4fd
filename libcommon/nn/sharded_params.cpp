#include "nn/sharded_params.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/TensorOptions.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "nn/cpu_allocator.hpp"
#include "nn/kernels/convert_kernels.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/ops/dispatch.hpp"
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
        case FlatState::master: return "master weights";
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
    const std::int64_t grain = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, row));
    kernels::parallel_for(rows, grain, fill_rows);
}

/// Copies to the same type, or from fp32 to bf16.
void round_into(const at::Tensor& values, const at::Tensor& rounded)
{
    if (rounded.scalar_type() == values.scalar_type())
    {
        rounded.copy_(values);
        return;
    }
    EXPECT(values.numel() == rounded.numel());
    constexpr std::int64_t block = 16384;
    const float* from = elements<float>(values);
    Bf16* to = mutable_elements<Bf16>(rounded);
    kernels::parallel_blocks(values.numel(), block,
                             [&](std::int64_t first, std::int64_t last) { kernels::narrow(from + first, to + first, last - first); });
}

}  // namespace

ShardedParams::ShardedParams(const ModelSpec& model, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                             at::ScalarType dtype, MemoryTracker& tracker)
    : layout_(layout), coordinate_(coordinate), dtype_(dtype),
      flat_(make_flat_layout(model, layout, coordinate, static_cast<std::int64_t>(c10::elementSize(dtype))))
{
    EXPECT(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16);
    kept_.resize(num_flat_states);
    whole_.resize(num_flat_states);
    for (int s = 0; s < num_flat_states; ++s)
    {
        const auto state = static_cast<FlatState>(s);
        if (state == FlatState::master && !keeps_master()) { continue; }
        const auto options = at::TensorOptions().dtype(type_of(state));
        for (const FlatUnit& unit : flat_.units)
        {
            const bool shard = keeps_shard(state, unit);
            const std::int64_t elements = shard ? unit.shard_elements : unit.num_elements;
            memory_.emplace_back(elements * static_cast<std::int64_t>(c10::elementSize(type_of(state))), tag_of(state), tracker, name_of(state));
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

at::ScalarType ShardedParams::sum_dtype() const { return sum_type(dtype_); }

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
    switch (static_cast<FlatState>(slot(state)))
    {
        case FlatState::params: return is_gathered(unit, layout_, flat_.element_bytes);
        case FlatState::grads: return layout_.shards_gradients();
        default: return is_sharded(layout_, StateKind::optimizer);
    }
}

const at::Tensor& ShardedParams::buffer(FlatState state, std::int64_t unit) const
{
    const at::Tensor& whole = whole_[slot(state)].at(static_cast<std::size_t>(unit));
    EXPECT(whole.defined());
    return whole;
}

at::Tensor ShardedParams::owned(FlatState state, std::int64_t unit) const
{
    const FlatUnit& of = flat_.units[static_cast<std::size_t>(unit)];
    const at::Tensor& kept = kept_[slot(state)][static_cast<std::size_t>(unit)];
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
    whole = at::empty({of.num_elements}, at::TensorOptions().dtype(type_of(state)));
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
        const auto index = static_cast<std::size_t>(u);
        const at::Tensor& kept = kept_[static_cast<std::size_t>(FlatState::params)][index];
        const bool shard = comes_and_goes(FlatState::params, u);
        const auto mine = [&](const at::Tensor& whole)
        { return whole.narrow(0, shard_index(layout_, coordinate_) * unit.shard_elements, unit.shard_elements); };
        if (!shard && !keeps_master())
        {
            fill_initial(unit, seed, kept);
            continue;
        }
        const at::Tensor values = at::zeros({unit.num_elements}, at::TensorOptions().dtype(sum_dtype()));
        fill_initial(unit, seed, values);
        if (keeps_master())
        {
            const at::Tensor& master = kept_[static_cast<std::size_t>(FlatState::master)][index];
            master.copy_(master.numel() == unit.num_elements ? values : mine(values));
        }
        round_into(shard ? mine(values) : values, kept);
    }
}

void ShardedParams::fill_initial(const FlatUnit& unit, std::uint64_t seed, const at::Tensor& values) const
{
    for (const FlatTensor& tensor : unit.tensors)
    {
        at::Tensor part = values.narrow(0, tensor.offset, tensor.num_elements());
        if (tensor.spec.init == InitKind::zeros) { part.zero_(); }
        else if (tensor.spec.init == InitKind::ones) { part.fill_(1); }
        else
        {
            const CounterRng rng(seed, RngPurpose::init, hash_name(tensor.spec.name));
            dispatch_wide(part.scalar_type(),
                          [&](auto zero) { fill_box(tensor, rng, mutable_elements<decltype(zero)>(part)); });
        }
    }
}

void ShardedParams::round_master()
{
    for (std::int64_t u = 0; u < num_units() && keeps_master(); ++u)
    {
        round_into(owned(FlatState::master, u), owned(FlatState::params, u));
    }
}

void ShardedParams::check_master() const
{
    for (std::int64_t u = 0; u < num_units() && keeps_master(); ++u)
    {
        const FlatUnit& unit = flat_.units[static_cast<std::size_t>(u)];
        const at::Tensor master = owned(FlatState::master, u), params = owned(FlatState::params, u);
        const float* wide = elements<float>(master);
        const Bf16* rounded = elements<Bf16>(params);
        const std::int64_t begin = master.numel() < unit.num_elements ? shard_index(layout_, coordinate_) * unit.shard_elements : 0;
        for (const FlatTensor& tensor : unit.tensors)
        {
            const std::int64_t first = std::max<std::int64_t>(0, tensor.offset - begin);
            const std::int64_t last = std::min(master.numel(), tensor.offset + tensor.num_elements() - begin);
            for (std::int64_t i = first; i < last; ++i)
            {
                VALIDATE(rounded[i].bits == Bf16(wide[i]).bits, NumericError,
                         "'{}' is no longer its fp32 master, rounded (a broken device, or a fault of this program). resume the "
                         "last checkpoint",
                         tensor.spec.name);
            }
        }
    }
}

void ShardedParams::zero_grads()
{
    for (const at::Tensor& grads : kept_[static_cast<std::size_t>(FlatState::grads)]) { grads.zero_(); }
}

}  // namespace plimsoll::nn
