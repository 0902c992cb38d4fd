#include "plan/activation_table.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "base/error.hpp"
#include "layout/precision.hpp"
#include "plan/kernel_shapes.hpp"

namespace plimsoll
{

/// Appends tensors of one operation.
struct ActivationTable::Adder
{
    std::vector<PlannedTensor>& tensors;
    Dtype dtype;
    PlanOp op;
    MemoryUse kept;  ///< category of what outlives the operation

    /// In the run's type.
    void add(const char* name, std::int64_t elements, TensorRole role, DividedBy divided = DividedBy::nothing) const
    {
        add(dtype, name, elements, role, divided);
    }

    /// In the type of sums.
    void add_wide(const char* name, std::int64_t elements, TensorRole role, DividedBy divided = DividedBy::nothing) const
    {
        add(sum_dtype(dtype), name, elements, role, divided);
    }

    /// Scratch of the products with a weight [outputs, inputs].
    void product(const char* name, std::int64_t tokens, std::int64_t inputs, std::int64_t outputs) const
    {
        if (!keeps_master(dtype)) { return; }
        add_wide(name, product_scratch_elements(tokens, inputs, outputs), TensorRole::temporary, DividedBy::tp);
    }

    void add(Dtype type, const char* name, std::int64_t elements, TensorRole role, DividedBy divided) const
    {
        PlannedTensor tensor;
        tensor.op = op;
        tensor.name = name;
        tensor.role = role;
        tensor.category = role == TensorRole::saved ? kept : MemoryUse::transient;
        tensor.divided = divided;
        tensor.dtype = type;
        tensor.elements = elements;
        tensors.push_back(tensor);
    }

    /// A tensor of the residual stream.
    void stream(const char* name, const LocalShapes& s, TensorRole role) const
    {
        add(name, s.stream_tokens * s.hidden, role, s.cuts_tokens() ? DividedBy::tp : DividedBy::nothing);
    }

    void norm(const ModelSpec& model, const LocalShapes& s) const
    {
        const std::int64_t dim = model.hidden, rows = num_sum_blocks(s.stream_tokens);
        const DividedBy divided = s.cuts_tokens() ? DividedBy::tp : DividedBy::nothing;
        add_wide("rstd", s.stream_tokens, TensorRole::saved, divided);
        if (model.norm == NormKind::layer_norm) { add_wide("mean", s.stream_tokens, TensorRole::saved, divided); }
        stream("y", s, TensorRole::saved);
        add_wide("dweight_parts", rows * dim, TensorRole::temporary);
        if (model.norm_bias) { add_wide("dbias_parts", rows * dim, TensorRole::temporary); }
        add_wide("dweight", dim, TensorRole::pending);
        if (model.norm_bias) { add_wide("dbias", dim, TensorRole::pending); }
    }

    /// What ranks exchange where the stream is cut by tokens.
    void all_tokens(const LocalShapes& s, std::initializer_list<const char*> names) const
    {
        if (!s.cuts_tokens()) { return; }
        for (const char* name : names) { add(name, s.tokens * s.hidden, TensorRole::temporary); }
    }

    void attention(const ModelSpec& model, const LocalShapes& s) const
    {
        const std::int64_t n = s.tokens, m = s.stream_tokens, rows = num_sum_blocks(n), kv_columns = s.kv_heads * s.head_dim;
        add("qkv", n * s.qkv_columns(), TensorRole::saved, DividedBy::tp);
        if (keeps_master(dtype))
        {
            add_wide("qkv_wide", n * s.qkv_columns(), TensorRole::temporary, DividedBy::tp);
            add_wide("out_wide", n * s.attention_columns(), TensorRole::temporary, DividedBy::tp);
        }
        else if (model.qk_norm)
        {
            add("qk", n * (s.attention_columns() + kv_columns), TensorRole::temporary, DividedBy::tp);
        }
        product("qkv_product", n, s.hidden, s.qkv_columns());
        product("o_product", n, s.attention_columns(), s.hidden);
        add("out", n * s.attention_columns(), TensorRole::saved, DividedBy::tp);
        add_wide("lse", n * s.heads, TensorRole::saved, DividedBy::tp);
        stream("y", s, TensorRole::saved);
        add("dqkv", n * s.qkv_columns(), TensorRole::pending, DividedBy::tp);
        add_wide("dout", n * s.attention_columns(), TensorRole::temporary, DividedBy::tp);
        add_wide("dq", n * s.attention_columns(), TensorRole::temporary, DividedBy::tp);
        add_wide("dk", n * kv_columns, TensorRole::temporary, DividedBy::tp);
        add_wide("dv", n * kv_columns, TensorRole::temporary, DividedBy::tp);
        if (model.qk_norm)
        {
            add_wide("dq_norm_parts", rows * s.head_dim, TensorRole::temporary);
            add_wide("dq_norm", s.head_dim, TensorRole::pending);
            add_wide("dk_norm_parts", rows * s.head_dim, TensorRole::temporary);
            add_wide("dk_norm", s.head_dim, TensorRole::pending);
        }
        stream("dx", s, TensorRole::output);
        if (s.hidden_dropout) { stream("dbranch", s, TensorRole::pending); }
        if (model.o_bias) { add_wide("do_bias_parts", num_sum_blocks(m) * s.hidden, TensorRole::temporary); }
        if (model.qkv_bias) { add_wide("dqkv_bias_parts", rows * s.qkv_columns(), TensorRole::temporary, DividedBy::tp); }
        all_tokens(s, {"all_x", "all_dy", "partial"});
    }

    void mlp(const ModelSpec& model, const LocalShapes& s) const
    {
        const std::int64_t n = s.tokens, rows = num_sum_blocks(n);
        add("pre", n * s.pre_columns, TensorRole::saved, DividedBy::tp);
        product("in_product", n, s.hidden, s.pre_columns);
        product("down_product", n, s.ffn, s.hidden);
        add("act", n * s.ffn, TensorRole::temporary, DividedBy::tp);
        stream("y", s, TensorRole::saved);
        add("dact", n * s.ffn, TensorRole::pending, DividedBy::tp);
        stream("dx", s, TensorRole::output);
        if (s.hidden_dropout) { stream("dbranch", s, TensorRole::pending); }
        if (model.mlp_bias)
        {
            add_wide("ddown_bias_parts", num_sum_blocks(s.stream_tokens) * s.hidden, TensorRole::temporary);
            add_wide("din_bias_parts", rows * s.pre_columns, TensorRole::temporary, DividedBy::tp);
        }
        all_tokens(s, {"all_x", "all_dy", "partial"});
    }
};

LocalShapes make_local_shapes(const ModelSpec& model, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                              const StepPolicies& policies, std::int64_t batch)
{
    EXPECT(policies.dtype == Dtype::f32 || policies.dtype == Dtype::f64 || policies.dtype == Dtype::bf16);
    EXPECT(batch >= 1 && policies.seq_len >= 1 && policies.threads >= 1);
    LocalShapes s;
    s.batch = batch;
    s.seq_len = policies.seq_len;
    s.tokens = batch * policies.seq_len;
    s.stream_tokens = layout.cuts_tokens(s.tokens) ? s.tokens / layout.tp : s.tokens;
    s.hidden = model.hidden;
    s.heads = model.heads / layout.tp;
    s.kv_heads = std::max<std::int64_t>(1, model.kv_heads / layout.tp);
    s.head_dim = model.head_dim;
    s.ffn = model.ffn / layout.tp;
    s.pre_columns = model.activation == Activation::swiglu ? 2 * s.ffn : s.ffn;
    s.vocab_columns = (model.vocab + layout.tp - 1) / layout.tp;
    const std::int64_t first = std::min(model.vocab, coordinate[MeshAxis::tp] * s.vocab_columns);
    s.vocab = std::min(model.vocab, first + s.vocab_columns) - first;
    s.element_bytes = dtype_bytes(policies.dtype);
    s.sum_bytes = dtype_bytes(sum_dtype(policies.dtype));
    s.chunk_rows =
        std::min(s.tokens, loss_chunk_rows(s.tokens, s.vocab_columns, s.sum_bytes, policies.loss_chunks));
    s.threads = policies.threads;
    s.tp = layout.tp;
    s.hidden_dropout = policies.hidden_dropout > 0;
    return s;
}

ActivationTable::ActivationTable(const ModelSpec& model, const LocalShapes& shapes, Dtype dtype) : shapes_(shapes)
{
    const auto of = [&](PlanOp op, MemoryUse kept) { return Adder{tensors_, dtype, op, kept}; };
    const Adder embedding = of(PlanOp::embedding, MemoryUse::loss);
    embedding.stream("y", shapes, TensorRole::saved);
    embedding.all_tokens(shapes, {"all_dy", "partial"});
    of(PlanOp::input_norm, MemoryUse::activations).norm(model, shapes);
    of(PlanOp::attention, MemoryUse::activations).attention(model, shapes);
    of(PlanOp::mlp_norm, MemoryUse::activations).norm(model, shapes);
    of(PlanOp::mlp, MemoryUse::activations).mlp(model, shapes);
    of(PlanOp::final_norm, MemoryUse::loss).norm(model, shapes);
    // The logits outlive no operation, but are a row of the memory table.
    const Adder head = of(PlanOp::head_loss, MemoryUse::loss);
    head.add_wide("logits", shapes.chunk_rows * logits_row_elements(shapes.vocab, shapes.sum_bytes), TensorRole::temporary,
                  DividedBy::tp);
    tensors_.back().category = MemoryUse::loss;
    head.product("product", shapes.chunk_rows, shapes.hidden, shapes.vocab);
    head.all_tokens(shapes, {"all_x"});
    const Adder messages = of(PlanOp::pipeline, MemoryUse::communication);
    messages.stream("x", shapes, TensorRole::saved);
    messages.stream("dy", shapes, TensorRole::saved);
}

const PlannedTensor* ActivationTable::find(PlanOp op, const char* name) const
{
    const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const PlannedTensor& tensor)
                                    { return tensor.op == op && std::strcmp(tensor.name, name) == 0; });
    return found == tensors_.end() ? nullptr : &*found;
}

const PlannedTensor& ActivationTable::at(PlanOp op, const char* name) const
{
    const PlannedTensor* found = find(op, name);
    if (found == nullptr)
    {
        throw InternalError(fmt::format("the activation table has no tensor '{}.{}'", plan_op_name(op), name));
    }
    return *found;
}

std::int64_t ActivationTable::forward_workspace(PlanOp op) const
{
    if (op != PlanOp::attention) { return 0; }
    return flash_forward_workspace(shapes_.seq_len, shapes_.head_dim, shapes_.sum_bytes, shapes_.threads);
}

std::int64_t ActivationTable::backward_workspace(PlanOp op) const
{
    if (op != PlanOp::attention) { return 0; }
    return flash_backward_workspace(shapes_.seq_len, shapes_.sum_bytes, shapes_.threads);
}

}  // namespace plimsoll
