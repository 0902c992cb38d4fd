#include "nn/ops/head_loss.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/t.h>

#include <algorithm>
#include <cstring>

#include "nn/kernels/loss_kernels.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/ops/dispatch.hpp"

namespace plimsoll::nn
{

namespace
{

void check_labels(const std::int64_t* labels, const std::uint8_t* mask, std::int64_t count, std::int64_t vocab)
{
    for (std::int64_t n = 0; n < count; ++n)
    {
        VALIDATE(mask[n] == 0 || (labels[n] >= 0 && labels[n] < vocab), FormatError,
                 "label {} is outside the vocabulary of {} (data of another tokenizer?)", labels[n], vocab);
    }
}

/// A buffer for a chunk's logits whose rows start on cache lines: with the odd row length of 50257 columns the
/// products are a fifth slower.
at::Tensor make_logits_buffer(std::int64_t rows, std::int64_t vocab, const at::TensorOptions& options)
{
    const std::int64_t per_line = 64 / static_cast<std::int64_t>(options.dtype().itemsize());
    return at::empty({rows, (vocab + per_line - 1) / per_line * per_line}, options).narrow(1, 0, vocab);
}

/// Loss of each row into `losses` (0 where masked); in LossMode::train the logits become their gradient.
template<class T>
void loss_of_rows(LossMode mode, double scale, const at::Tensor& logits_CV, const std::int64_t* labels,
                  const std::uint8_t* mask, double* losses)
{
    const std::int64_t vocab = logits_CV.size(1);
    const std::int64_t stride = logits_CV.stride(0);
    T* logits = logits_CV.mutable_data_ptr<T>();
    kernels::parallel_for(logits_CV.size(0), 1,
                          [&](std::int64_t first, std::int64_t last)
                          {
                              for (std::int64_t n = first; n < last; ++n)
                              {
                                  T* row = logits + n * stride;
                                  losses[n] = 0;
                                  if (mask[n] == 0)
                                  {
                                      std::memset(row, 0, static_cast<std::size_t>(vocab) * sizeof(T));
                                      continue;
                                  }
                                  double sum = 0;
                                  losses[n] = kernels::cross_entropy_row(row, vocab, labels[n], sum);
                                  if (mode == LossMode::train)
                                  {
                                      kernels::cross_entropy_gradient_row(row, vocab, labels[n], sum, scale);
                                  }
                              }
                          });
}

}  // namespace

std::int64_t head_loss_chunk_rows(const HeadLossParams& params, std::int64_t num_rows)
{
    const std::int64_t row_bytes =
        params.weight_VD.size(0) * static_cast<std::int64_t>(params.weight_VD.element_size());
    const std::int64_t rows_in_budget = std::max<std::int64_t>(1, params.chunk_bytes / row_bytes);
    const std::int64_t chunks = params.chunks > 0 ? params.chunks : (num_rows + rows_in_budget - 1) / rows_in_budget;
    return std::max<std::int64_t>(1, (num_rows + chunks - 1) / std::max<std::int64_t>(1, chunks));
}

HeadLossResult head_loss(const OpContext&, const HeadLossParams& params, LossMode mode, const at::Tensor& x_ND,
                         const at::Tensor& labels_N, const at::Tensor& mask_N, HeadLossGrads& grads)
{
    const std::int64_t num_rows = x_ND.size(0);
    const std::int64_t vocab = params.weight_VD.size(0);
    EXPECT(x_ND.dim() == 2 && x_ND.is_contiguous() && labels_N.numel() == num_rows && mask_N.numel() == num_rows);
    const std::int64_t* labels = elements<std::int64_t>(labels_N);
    const std::uint8_t* mask = elements<std::uint8_t>(mask_N);
    check_labels(labels, mask, num_rows, vocab);

    const std::int64_t chunk_rows = head_loss_chunk_rows(params, num_rows);
    const at::Tensor buffer_CV = make_logits_buffer(std::min(chunk_rows, num_rows), vocab, x_ND.options());
    const at::Tensor weight_DV = at::t(params.weight_VD);
    std::vector<double> losses(static_cast<std::size_t>(num_rows));
    for (std::int64_t first = 0; first < num_rows; first += chunk_rows)
    {
        const std::int64_t rows = std::min(chunk_rows, num_rows - first);
        at::Tensor x_CD = x_ND.narrow(0, first, rows);
        at::Tensor logits_CV = buffer_CV.narrow(0, 0, rows);
        at::mm_out(logits_CV, x_CD, weight_DV);
        dispatch_real(x_ND.scalar_type(),
                      [&](auto zero) {
                          loss_of_rows<decltype(zero)>(mode, params.scale, logits_CV, labels + first, mask + first,
                                                       losses.data() + first);
                      });
        if (mode == LossMode::evaluate) { continue; }
        // The weight's gradient reads x before dx is written over it.
        if (grads.weight_VD.defined()) { at::addmm_out(grads.weight_VD, grads.weight_VD, at::t(logits_CV), x_CD); }
        at::mm_out(x_CD, logits_CV, params.weight_VD);
    }

    HeadLossResult result;
    for (std::int64_t n = 0; n < num_rows; ++n)
    {
        result.loss_sum += losses[static_cast<std::size_t>(n)];
        result.count += mask[n] != 0 ? 1 : 0;
    }
    if (mode == LossMode::train) { result.dx_ND = x_ND; }
    return result;
}

}  // namespace plimsoll::nn
