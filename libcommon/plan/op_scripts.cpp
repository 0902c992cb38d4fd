#include "plan/op_scripts.hpp"

#include "base/error.hpp"
#include "plan/kernel_shapes.hpp"

namespace plimsoll
{
namespace
{

/// Statistics of one row of the loss that tp ranks exchange: four doubles (nn/kernels/loss_kernels.hpp).
constexpr std::int64_t row_statistics_bytes = 32;

class Writer
{
  public:
    Writer(const ModelSpec& model, const ActivationTable& table, OpScript& script)
        : model_(model), table_(table), shapes_(table.shapes()), script_(script)
    {
    }

    void embedding_forward()
    {
        summed_over_tp(PlanOp::embedding, "y", [&] { compute(PlanOp::embedding, "look up", 0, 2 * all_tokens_bytes()); });
    }

    void embedding_backward()
    {
        gather_tokens(PlanOp::embedding, "all_dy");
        compute(PlanOp::embedding, "add rows", 0, 3 * all_tokens_bytes());
        free_if(PlanOp::embedding, "all_dy");
    }

    void norm_forward(PlanOp op)
    {
        alloc(op, "rstd");
        alloc_if(op, "mean");
        alloc(op, "y");
        compute(op, "forward", 0, 2 * stream_bytes());
    }

    void attention_forward()
    {
        const PlanOp op = PlanOp::attention;
        const bool wide = table_.find(op, "qkv_wide") != nullptr;
        gather_tokens(op, "all_x");
        alloc(op, "qkv");
        passing_if(op, "qkv_product");
        free_if(op, "all_x");
        alloc_if(op, "qk");
        alloc_if(op, "qkv_wide");
        alloc(op, wide ? "out_wide" : "out");
        alloc(op, "lse");
        workspace(op, "flash forward", table_.forward_workspace(op));
        if (wide)
        {
            alloc(op, "out");
            free(op, "out_wide");
            free(op, "qkv_wide");
        }
        free_if(op, "qk");
        summed_over_tp(op, "y",
                       [&]
                       {
                           passing_if(op, "o_product");
                           compute(op, "forward", product(shapes_.hidden, shapes_.qkv_columns()) + 2 * scores() + out_product(),
                                   2 * all_tokens_bytes() + 2 * bytes(op, "qkv") + 2 * bytes(op, "out") + attention_weight_bytes());
                       });
    }

    void mlp_forward()
    {
        const PlanOp op = PlanOp::mlp;
        gather_tokens(op, "all_x");
        alloc(op, "pre");
        passing_if(op, "in_product");
        free_if(op, "all_x");
        alloc(op, "act");
        summed_over_tp(op, "y",
                       [&]
                       {
                           passing_if(op, "down_product");
                           compute(op, "forward", mlp_product(),
                                   2 * all_tokens_bytes() + 2 * bytes(op, "pre") + 2 * bytes(op, "act") + mlp_weight_bytes());
                       });
        free(op, "act");
    }

    /// Frees the norm's input too: `input_op.y`, in the block's own layer or before it.
    void norm_backward(PlanOp op, PlanOp input_op, std::int64_t input_layer = -1)
    {
        norm_backward_input(op, input_op, input_layer);
        norm_backward_weight(op);
    }

    void norm_backward_input(PlanOp op, PlanOp input_op, std::int64_t input_layer = -1)
    {
        alloc(op, "dweight_parts");
        alloc_if(op, "dbias_parts");
        alloc(op, "dweight");
        alloc_if(op, "dbias");
        compute(op, "backward", 0, 3 * stream_bytes());
        free_if(op, "dbias_parts");
        free(op, "dweight_parts");
        free(op, "rstd");
        free_if(op, "mean");
        free(input_op, "y", input_layer);
    }

    void norm_backward_weight(PlanOp op)
    {
        free_if(op, "dbias");
        free(op, "dweight");
    }

    void mlp_backward_input()
    {
        const PlanOp op = PlanOp::mlp;
        branch_gradient(op);
        gather_tokens(op, "all_dy");
        alloc(op, "dact");
        passing_if(op, "down_product");
        summed_over_tp(op, "dx",
                       [&]
                       {
                           passing_if(op, "in_product");
                           compute(op, "backward input", mlp_product(),
                                   2 * all_tokens_bytes() + 3 * bytes(op, "pre") + 3 * bytes(op, "dact") + mlp_weight_bytes());
                       });
    }

    enum class Gradient { stays, ends };

    /// `incoming`: whether the gradient that came into the block ends with its last reader.
    void mlp_backward_weight(Gradient incoming)
    {
        const PlanOp op = PlanOp::mlp;
        // Directly behind backward_input, what that gathered is still there.
        if (incoming == Gradient::ends) { gather_tokens(op, "all_dy"); }
        passing_if(op, "down_product");
        free_if(op, "all_dy");
        passing_if(op, "ddown_bias_parts");
        gather_tokens(op, "all_x");
        passing_if(op, "in_product");
        free_if(op, "all_x");
        passing_if(op, "din_bias_parts");
        compute(op, "backward weight", mlp_product(),
                2 * all_tokens_bytes() + bytes(op, "pre") + bytes(op, "dact") + 2 * mlp_weight_bytes());
        free_if(op, "dbranch");
        // The activation's output lies where the pre-activation was (GELU) or where its gradient was (SwiGLU).
        const bool gated = model_.activation == Activation::swiglu;
        if (incoming == Gradient::ends) { free(op, "dx", block_gradient_layer); }
        free(op, gated ? "dact" : "pre");
        free(op, gated ? "pre" : "dact");
        free(PlanOp::mlp_norm, "y");
    }

    void attention_backward_input()
    {
        const PlanOp op = PlanOp::attention;
        branch_gradient(op);
        alloc(op, "dqkv");
        gather_tokens(op, "all_dy");
        alloc(op, "dout");
        passing_if(op, "o_product");
        alloc_if(op, "qk");
        alloc_if(op, "qkv_wide");
        alloc_if(op, "out_wide");
        for (const char* name : {"dq", "dk", "dv"}) { alloc(op, name); }
        workspace(op, "flash backward", table_.backward_workspace(op));
        for (const char* name : {"dq", "dk", "dv"}) { free(op, name); }
        free_if(op, "out_wide");
        free_if(op, "qkv_wide");
        free_if(op, "qk");
        free(op, "dout");
        for (const char* name : {"dq_norm", "dk_norm"}) { head_norm_backward(name); }
        summed_over_tp(op, "dx",
                       [&]
                       {
                           passing_if(op, "qkv_product");
                           compute(op, "backward input",
                                   product(shapes_.hidden, shapes_.qkv_columns()) + 5 * scores() + out_product(),
                                   2 * all_tokens_bytes() + 4 * bytes(op, "qkv") + 3 * bytes(op, "out") + attention_weight_bytes());
                       });
        free(op, "lse");
        free(op, "qkv");
    }

    void attention_backward_weight(Gradient incoming)
    {
        const PlanOp op = PlanOp::attention;
        // Directly behind backward_input, what that gathered is still there.
        if (incoming == Gradient::ends) { gather_tokens(op, "all_dy"); }
        passing_if(op, "o_product");
        free_if(op, "all_dy");
        passing_if(op, "do_bias_parts");
        gather_tokens(op, "all_x");
        passing_if(op, "qkv_product");
        free_if(op, "all_x");
        passing_if(op, "dqkv_bias_parts");
        compute(op, "backward weight", product(shapes_.hidden, shapes_.qkv_columns()) + out_product(),
                2 * all_tokens_bytes() + bytes(op, "qkv") + bytes(op, "out") + 2 * attention_weight_bytes());
        free_if(op, "dk_norm");
        free_if(op, "dq_norm");
        if (incoming == Gradient::ends) { free(PlanOp::mlp, "dx"); }
        free_if(op, "dbranch");
        free(op, "out");
        free(op, "dqkv");
        free(PlanOp::input_norm, "y");
    }

    void block_backward()
    {
        mlp_backward_input();
        mlp_backward_weight(Gradient::stays);
        norm_backward(PlanOp::mlp_norm, PlanOp::attention);
        free(PlanOp::mlp, "dx");
        attention_backward_input();
        attention_backward_weight(Gradient::stays);
        norm_backward(PlanOp::input_norm, PlanOp::mlp, block_input_layer);
        free(PlanOp::attention, "dx");
    }

    /// The branches' dx become the gradients of the stream; what came in and they stay for the weights. Behind dropout the weights
    /// read what its masks left, and the gradient of the stream is written over as in the plain backward.
    void block_backward_input()
    {
        mlp_backward_input();
        free_if(PlanOp::mlp, "all_dy");
        norm_backward_input(PlanOp::mlp_norm, PlanOp::attention);
        if (shapes_.hidden_dropout) { free(PlanOp::mlp, "dx"); }
        attention_backward_input();
        free_if(PlanOp::attention, "all_dy");
        norm_backward_input(PlanOp::input_norm, PlanOp::mlp, block_input_layer);
        if (shapes_.hidden_dropout) { free(PlanOp::attention, "dx"); }
    }

    void block_backward_weight()
    {
        const Gradient incoming = shapes_.hidden_dropout ? Gradient::stays : Gradient::ends;
        mlp_backward_weight(incoming);
        norm_backward_weight(PlanOp::mlp_norm);
        attention_backward_weight(incoming);
        norm_backward_weight(PlanOp::input_norm);
    }

    /// In the order in which the members of a block's saved tensors end.
    void block_drop()
    {
        free(PlanOp::mlp, "pre");
        free(PlanOp::mlp_norm, "y");
        norm_drop(PlanOp::mlp_norm);
        free(PlanOp::attention, "y");
        free(PlanOp::attention, "lse");
        free(PlanOp::attention, "out");
        free(PlanOp::attention, "qkv");
        free(PlanOp::input_norm, "y");
        norm_drop(PlanOp::input_norm);
        free(PlanOp::mlp, "y", block_input_layer);
    }

    void norm_drop(PlanOp op)
    {
        free(op, "rstd");
        free_if(op, "mean");
    }

    void loss(bool train)
    {
        const PlanOp op = PlanOp::head_loss;
        gather_tokens(op, "all_x");
        alloc(op, "logits");
        for (std::int64_t first = 0; first < shapes_.tokens; first += shapes_.chunk_rows)
        {
            const std::int64_t rows = std::min(shapes_.chunk_rows, shapes_.tokens - first);
            const std::int64_t chunk_bytes = rows * shapes_.hidden * shapes_.element_bytes;
            const std::int64_t logits_bytes = rows * shapes_.vocab * shapes_.sum_bytes;
            const std::int64_t weight_bytes = shapes_.vocab * shapes_.hidden * shapes_.element_bytes;
            const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(shapes_.hidden * shapes_.vocab);
            loss_product(rows);
            compute(op, "loss", flops, chunk_bytes + 2 * logits_bytes + weight_bytes);
            collective(op, "row statistics", CollectiveKind::all_gather, rows * shapes_.tp * row_statistics_bytes);
            if (!train) { continue; }
            loss_product(rows);
            loss_product(rows);
            compute(op, "gradients", 2 * flops, 3 * chunk_bytes + 3 * logits_bytes + 3 * weight_bytes);
            if (!shapes_.cuts_tokens()) { collective(op, "dx", CollectiveKind::all_reduce, chunk_bytes); }
        }
        if (train && shapes_.cuts_tokens()) { collective(op, "dx", CollectiveKind::reduce_scatter, all_tokens_bytes()); }
        free(op, "logits");
        free_if(op, "all_x");
    }

    void free(PlanOp op, const char* name, std::int64_t layer = -1) { tensor(EventKind::free, table_.at(op, name), layer); }

  private:
    void alloc(PlanOp op, const char* name) { tensor(EventKind::alloc, table_.at(op, name), -1); }

    void alloc_if(PlanOp op, const char* name)
    {
        if (table_.find(op, name) != nullptr) { alloc(op, name); }
    }

    void free_if(PlanOp op, const char* name)
    {
        if (table_.find(op, name) != nullptr) { free(op, name); }
    }

    /// Scratch of a product with the head's weight; the last chunk may have fewer rows.
    void loss_product(std::int64_t rows)
    {
        const PlannedTensor* scratch = table_.find(PlanOp::head_loss, "product");
        if (scratch == nullptr) { return; }
        PlannedTensor of_rows = *scratch;
        of_rows.elements = product_scratch_elements(rows, shapes_.hidden, shapes_.vocab);
        tensor(EventKind::alloc, of_rows, -1);
        tensor(EventKind::free, of_rows, -1);
    }

    /// Hidden dropout draws its mask again.
    void branch_gradient(PlanOp op)
    {
        if (table_.find(op, "dbranch") == nullptr) { return; }
        alloc(op, "dbranch");
        compute(op, "dropout", 0, 2 * stream_bytes());
    }

    /// There for a moment only.
    void passing_if(PlanOp op, const char* name)
    {
        alloc_if(op, name);
        free_if(op, name);
    }

    void head_norm_backward(const char* name)
    {
        if (table_.find(PlanOp::attention, name) == nullptr) { return; }
        const char* parts = name[1] == 'q' ? "dq_norm_parts" : "dk_norm_parts";
        alloc(PlanOp::attention, parts);
        alloc(PlanOp::attention, name);
        free(PlanOp::attention, parts);
    }

    void tensor(EventKind kind, const PlannedTensor& planned, std::int64_t layer)
    {
        if (planned.elements == 0) { return; }  // a rank without real rows of the vocabulary
        StepEvent event;
        event.kind = kind;
        event.op = planned.op;
        event.category = planned.category;
        event.name = planned.name;
        event.layer = layer;
        event.bytes = planned.bytes();
        script_.push_back(event);
    }

    void workspace(PlanOp op, const char* name, std::int64_t most)
    {
        StepEvent event;
        event.kind = EventKind::workspace;
        event.op = op;
        event.name = name;
        event.bytes = most;
        script_.push_back(event);
    }

    void compute(PlanOp op, const char* name, double flops, std::int64_t traffic)
    {
        StepEvent event;
        event.op = op;
        event.name = name;
        event.bytes = traffic;
        event.flops = flops;
        script_.push_back(event);
    }

    void collective(PlanOp op, const char* name, CollectiveKind kind, std::int64_t size)
    {
        if (shapes_.tp == 1) { return; }
        StepEvent event;
        event.kind = EventKind::start;
        event.op = op;
        event.collective = kind;
        event.group = GroupKind::tp;
        event.name = name;
        event.bytes = size;
        script_.push_back(event);
        event.kind = EventKind::wait;
        script_.push_back(event);
    }

    /// As gather_tokens() of nn/ops/token_shards.
    void gather_tokens(PlanOp op, const char* name)
    {
        if (!shapes_.cuts_tokens()) { return; }
        alloc(op, name);
        collective(op, name, CollectiveKind::all_gather, bytes(op, name));
    }

    /// Makes a tensor of the stream from each rank's part, which `make` computes; as sum_to_stream().
    template<class Make>
    void summed_over_tp(PlanOp op, const char* name, const Make& make)
    {
        alloc(op, shapes_.cuts_tokens() ? "partial" : name);
        make();
        if (!shapes_.cuts_tokens())
        {
            collective(op, name, CollectiveKind::all_reduce, bytes(op, name));
            return;
        }
        alloc(op, name);
        collective(op, name, CollectiveKind::reduce_scatter, bytes(op, "partial"));
        free(op, "partial");
    }

    std::int64_t bytes(PlanOp op, const char* name) const { return table_.at(op, name).bytes(); }
    std::int64_t stream_bytes() const { return shapes_.stream_tokens * shapes_.hidden * shapes_.element_bytes; }
    std::int64_t all_tokens_bytes() const { return shapes_.tokens * shapes_.hidden * shapes_.element_bytes; }

    double product(std::int64_t inputs, std::int64_t outputs) const
    {
        return 2.0 * static_cast<double>(shapes_.tokens) * static_cast<double>(inputs) * static_cast<double>(outputs);
    }
    double out_product() const { return product(shapes_.attention_columns(), shapes_.hidden); }
    double mlp_product() const
    {
        return product(shapes_.hidden, shapes_.pre_columns) + product(shapes_.ffn, shapes_.hidden);
    }
    /// One of attention's products over pairs of tokens; the causal mask leaves S (S + 1) / 2 of them.
    double scores() const
    {
        return static_cast<double>(shapes_.batch * shapes_.attention_columns()) * static_cast<double>(shapes_.seq_len) *
               static_cast<double>(shapes_.seq_len + 1);
    }
    std::int64_t attention_weight_bytes() const
    {
        return (shapes_.qkv_columns() + shapes_.attention_columns()) * shapes_.hidden * shapes_.element_bytes;
    }
    std::int64_t mlp_weight_bytes() const
    {
        return (shapes_.pre_columns + shapes_.ffn) * shapes_.hidden * shapes_.element_bytes;
    }

    const ModelSpec& model_;
    const ActivationTable& table_;
    const LocalShapes& shapes_;
    OpScript& script_;
};

}  // namespace

OpScripts::OpScripts(const ModelSpec& model, const ActivationTable& table)
{
    const auto into = [&](OpScript& script) { return Writer(model, table, script); };
    into(embedding_forward).embedding_forward();
    into(embedding_backward).embedding_backward();
    Writer forward = into(block_forward);
    forward.norm_forward(PlanOp::input_norm);
    forward.attention_forward();
    forward.norm_forward(PlanOp::mlp_norm);
    forward.mlp_forward();
    into(block_backward).block_backward();
    into(OpScripts::block_backward_input).block_backward_input();
    into(OpScripts::block_backward_weight).block_backward_weight();
    into(block_drop).block_drop();
    Writer head = into(head_step);
    head.norm_forward(PlanOp::final_norm);
    head.loss(true);
    head.norm_backward(PlanOp::final_norm, PlanOp::mlp, block_input_layer);
    Writer validate = into(head_validate);
    validate.norm_forward(PlanOp::final_norm);
    validate.norm_drop(PlanOp::final_norm);
    validate.free(PlanOp::mlp, "y", block_input_layer);
    validate.loss(false);
    validate.free(PlanOp::final_norm, "y");
}

}  // namespace plimsoll
