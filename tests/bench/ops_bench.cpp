// Own operations beside ATen's, interleaved in one run: GPT-2 124M shapes, B = 4, S = 256. Nothing is asserted.
//
//     ops_bench [threads] [repetitions]

#define AT_PER_OPERATOR_HEADERS  // without it TensorOperators.h takes in every operation
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "nn/kernels/activation_kernels.hpp"
#include "nn/kernels/loss_kernels.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/ops/dropout.hpp"
#include "nn/ops/embedding.hpp"
#include "nn/ops/head_loss.hpp"
#include "nn/ops/linear.hpp"
#include "nn/ops/norm.hpp"
#include "nn/ops/residual.hpp"
#include "nn/ops/tensor_view.hpp"
#include "nn/optimizer.hpp"

using namespace plimsoll;
using namespace plimsoll::nn;

namespace
{

constexpr std::int64_t tokens = 1024, model = 768, ffn = 3072, vocab = 50257;

double milliseconds(const std::function<void()>& body)
{
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void compare(const char* name, int repetitions, const std::function<void()>& own, const std::function<void()>& aten)
{
    own();
    aten();
    std::vector<double> own_ms, aten_ms;
    for (int i = 0; i < repetitions; ++i)
    {
        own_ms.push_back(milliseconds(own));
        aten_ms.push_back(milliseconds(aten));
    }
    const auto least = [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); };
    std::printf("%-28s %10.2f %10.2f %8.2f   %10.2f %10.2f %8.2f\n", name, median(own_ms), median(aten_ms),
                median(aten_ms) / median(own_ms), least(own_ms), least(aten_ms), least(aten_ms) / least(own_ms));
    std::fflush(stdout);
}

OpContext make_context()
{
    static Stream stream;
    static const auto alone = make_self_communicator("tp");
    OpContext ctx;
    ctx.stream = &stream;
    ctx.tp = alone.get();
    ctx.batch = 4;
    ctx.seq_len = 256;
    return ctx;
}

void bench_head_loss(int repetitions)
{
    const at::Tensor x = at::randn({tokens, model});
    const at::Tensor labels = at::randint(0, vocab, {tokens}, at::TensorOptions().dtype(at::kLong));
    const at::Tensor mask = at::zeros({tokens}, at::TensorOptions().dtype(at::kByte)) + 1;
    HeadLossParams params;
    params.weight_VD = at::randn({vocab, model}) * 0.02;
    params.scale = 1.0 / tokens;
    HeadLossGrads grads;
    grads.weight_VD = at::zeros_like(params.weight_VD);
    at::Tensor dweight = at::zeros_like(params.weight_VD);
    const at::Tensor work = x.clone();
    compare(
        "head_loss", repetitions,
        [&]
        {
            work.copy_(x);
            head_loss(make_context(), params, LossMode::train, work, labels, mask, grads);
        },
        [&]
        {
            const at::Tensor logits = at::mm(x, params.weight_VD.t());
            const at::Tensor log_p = at::_log_softmax(logits, 1, false);
            auto [loss, weight] = at::nll_loss_forward(log_p, labels, {}, 1, -100);
            const at::Tensor dlog_p = at::nll_loss_backward(at::zeros({}) + 1, log_p, labels, {}, 1, -100, weight);
            const at::Tensor dlogits = at::_log_softmax_backward_data(dlog_p, log_p, 1, at::kFloat);
            const at::Tensor dx = at::mm(dlogits, params.weight_VD);
            at::addmm_out(dweight, dweight, dlogits.t(), x);
        });
    at::Tensor logits = at::randn({tokens, vocab});
    float* row = logits.mutable_data_ptr<float>();
    const std::int64_t* label = labels.const_data_ptr<std::int64_t>();
    const kernels::LossTerms terms;
    compare(
        "  its loss and gradient", repetitions,
        [&]
        {
            kernels::parallel_for(tokens, 1,
                                  [&](std::int64_t first, std::int64_t last)
                                  {
                                      for (std::int64_t n = first; n < last; ++n)
                                      {
                                          const auto part = kernels::cross_entropy_row(
                                              row + n * vocab, vocab, label[n], terms.logit_sum());
                                          kernels::cross_entropy_gradient_row(row + n * vocab, vocab, label[n], part,
                                                                              part, terms, 1.0);
                                      }
                                  });
        },
        [&]
        {
            const at::Tensor log_p = at::_log_softmax(logits, 1, false);
            auto [loss, weight] = at::nll_loss_forward(log_p, labels, {}, 1, -100);
            const at::Tensor dlog_p = at::nll_loss_backward(at::zeros({}) + 1, log_p, labels, {}, 1, -100, weight);
            at::_log_softmax_backward_data(dlog_p, log_p, 1, at::kFloat);
        });
    at::Tensor dx = at::zeros({tokens, model});
    // In four chunks, as head_loss takes them, and at once.
    const auto products = [&](std::int64_t rows)
    {
        for (std::int64_t first = 0; first < tokens; first += rows)
        {
            at::Tensor chunk = logits.narrow(0, 0, rows);
            at::Tensor dx_chunk = dx.narrow(0, first, rows);
            at::mm_out(chunk, x.narrow(0, first, rows), params.weight_VD.t());
            at::mm_out(dx_chunk, chunk, params.weight_VD);
            at::addmm_out(dweight, dweight, chunk.t(), x.narrow(0, first, rows));
        }
    };
    compare(
        "  its products: 4 chunks, 1", repetitions, [&] { products(tokens / 4); }, [&] { products(tokens); });
}

void bench_norm(NormKind kind, int repetitions)
{
    NormParams params;
    params.kind = kind;
    params.weight_D = at::zeros({model}) + 1;
    if (kind == NormKind::layer_norm) { params.bias_D = at::zeros({model}); }
    const at::Tensor x = at::randn({tokens, model});
    const at::Tensor dy = at::randn({tokens, model});
    NormSaved saved = norm_forward(make_context(), params, x).saved;
    const at::Tensor& w = params.weight_D;
    const at::Tensor rstd = at::rsqrt((x * x).mean(-1, true) + 1e-5);
    const bool layer = kind == NormKind::layer_norm;
    auto statistics = at::native_layer_norm(x, {model}, w, params.bias_D, 1e-5);
    compare(
        layer ? "layer_norm forward" : "rms_norm forward", repetitions * 10,
        [&] { norm_forward(make_context(), params, x); },
        [&]
        {
            if (layer) { at::native_layer_norm(x, {model}, w, params.bias_D, 1e-5); }
            else { x* at::rsqrt((x * x).mean(-1, true) + 1e-5) * w; }
        });
    compare(
        layer ? "layer_norm backward" : "rms_norm backward", repetitions * 10,
        [&]
        {
            NormSaved again = saved;
            norm_backward_input(make_context(), params, std::move(again), dy);
        },
        [&]
        {
            if (layer)
            {
                at::native_layer_norm_backward(dy, x, {model}, std::get<1>(statistics), std::get<2>(statistics), w,
                                               params.bias_D, {true, true, true});
                return;
            }
            const at::Tensor xhat = x * rstd;
            const at::Tensor g = dy * w;
            (g - xhat * (g * xhat).mean(-1, true)) * rstd;
            (dy * xhat).sum(0);
        });
}

void bench_activations(int repetitions)
{
    const at::Tensor pre = at::randn({tokens, ffn});
    const at::Tensor dact = at::randn({tokens, ffn});
    const at::Tensor out = at::zeros({tokens, ffn});
    const auto rows = [](const auto& body)
    {
        kernels::parallel_for(tokens, 8,
                              [&](std::int64_t first, std::int64_t last)
                              {
                                  for (std::int64_t n = first; n < last; ++n) { body(n); }
                              });
    };
    for (const auto kind : {kernels::GeluKind::tanh, kernels::GeluKind::erf})
    {
        const char* name = kind == kernels::GeluKind::tanh ? "tanh" : "none";
        float* p = pre.mutable_data_ptr<float>();
        float* d = dact.mutable_data_ptr<float>();
        float* o = out.mutable_data_ptr<float>();
        compare(
            name[0] == 't' ? "gelu_tanh forward" : "gelu_erf forward", repetitions * 4,
            [&] { rows([&](std::int64_t n) { kernels::gelu_forward(kind, p + n * ffn, o + n * ffn, ffn); }); },
            [&] { at::gelu(pre, name); });
        compare(
            name[0] == 't' ? "gelu_tanh backward + output" : "gelu_erf backward + output", repetitions * 4,
            [&] { rows([&](std::int64_t n) { kernels::gelu_backward(kind, p + n * ffn, d + n * ffn, ffn); }); },
            [&]
            {
                at::gelu(pre, name);
                at::gelu_backward(dact, pre, name);
            });
    }
    const at::Tensor gated = at::randn({tokens, 2 * ffn});
    float* p = gated.mutable_data_ptr<float>();
    float* d = dact.mutable_data_ptr<float>();
    float* o = out.mutable_data_ptr<float>();
    const at::Tensor gate = gated.narrow(1, 0, ffn);
    const at::Tensor up = gated.narrow(1, ffn, ffn);
    compare(
        "swiglu forward", repetitions * 4,
        [&] { rows([&](std::int64_t n) { kernels::swiglu_forward(p + n * 2 * ffn, o + n * ffn, ffn); }); },
        [&] { at::silu(gate) * up; });
    compare(
        "swiglu backward + output", repetitions * 4,
        [&] { rows([&](std::int64_t n) { kernels::swiglu_backward(p + n * 2 * ffn, d + n * ffn, ffn); }); },
        [&]
        {
            const at::Tensor silu = at::silu(gate);
            silu* up;
            dact* silu;
            at::silu_backward(dact * up, gate);
        });
}

void bench_sums(int repetitions)
{
    const at::Tensor dy = at::randn({tokens, ffn});
    const at::Tensor sum = at::zeros({ffn});
    compare(
        "bias gradient", repetitions * 4, [&] { add_bias_gradient(dy, sum); }, [&] { sum.add_(at::sum(dy, {0})); });

    const at::Tensor ids = at::randint(0, vocab, {tokens}, at::TensorOptions().dtype(at::kLong));
    const at::Tensor drow = at::randn({tokens, model});
    EmbeddingGrads grads;
    grads.tokens_VD = at::zeros({vocab, model});
    compare(
        "embedding gradient", repetitions,
        [&]
        {
            EmbeddingPending pending;
            pending.ids_N = ids;
            pending.dy_MD = drow;
            embedding_backward_weight(make_context(), std::move(pending), grads);
        },
        [&] { grads.tokens_VD.add_(at::embedding_dense_backward(drow, ids, vocab, -1, false)); });
}

void bench_optimizer(int repetitions)
{
    constexpr std::int64_t count = 31'000'000;
    const at::Tensor p = at::randn({count}), g = at::randn({count}), m = at::zeros({count}), v = at::rand({count});
    AdamWStep step;
    step.lr = 1e-4;
    step.weight_decay = 0.1;
    step.step = 10;
    const at::Tensor t = at::zeros({}) + 10;
    compare(
        "adamw, 31 M", repetitions,
        [&] { adamw_update(step, buffer_view(p), buffer_view(g), buffer_view(m), buffer_view(v)); },
        [&]
        {
            at::_fused_adamw_({p}, {g}, {m}, {v}, {}, {t}, step.lr, step.beta1, step.beta2, step.weight_decay, step.eps,
                              false, false);
        });
    compare(
        "sum of squares, 31 M", repetitions, [&] { sum_of_squares(buffer_view(g)); }, [&] { g.norm().item<float>(); });
}

void bench_dropout(int repetitions)
{
    const OpContext ctx = make_context();
    const at::Tensor x = at::randn({tokens, model}), branch = at::randn({tokens, model});
    at::Tensor sum = at::zeros_like(x);
    const Dropout dropout = {0.1, DropoutSite::mlp, 3};
    compare(
        "residual", repetitions, [&] { residual_add(ctx, x, branch); }, [&] { at::add_out(sum, x, branch); });
    compare(
        "dropout and residual", repetitions, [&] { dropout_add(ctx, dropout, x, branch); },
        [&] { at::add_out(sum, x, std::get<0>(at::native_dropout(branch, 0.1, true))); });
    compare(
        "dropout backward", repetitions, [&] { dropout_backward(ctx, dropout, x); }, [&] { at::native_dropout(x, 0.1, true); });
}

}  // namespace

int main(int argc, char** argv)
{
    const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
    const int repetitions = argc > 2 ? std::atoi(argv[2]) : 5;
    at::set_num_threads(threads);
    const c10::AutoGradMode no_autograd(false);
    std::printf("%d threads, %d repetitions, ms            median                              best\n", threads,
                repetitions);
    std::printf("%-28s %10s %10s %8s   %10s %10s %8s\n", "", "own", "aten", "ratio", "own", "aten", "ratio");
    bench_norm(NormKind::layer_norm, repetitions);
    bench_norm(NormKind::rms_norm, repetitions);
    bench_activations(repetitions);
    bench_sums(repetitions);
    bench_optimizer(repetitions);
    bench_head_loss(repetitions);
    bench_dropout(repetitions);
    return 0;
}
