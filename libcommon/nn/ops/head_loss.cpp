#include "nn/ops/head_loss.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "nn/cpu_allocator.hpp"
#include "nn/kernels/loss_kernels.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/ops/dispatch.hpp"
#include "nn/ops/product.hpp"
#include "nn/ops/token_shards.hpp"
#include "plan/kernel_shapes.hpp"

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
    const at::Tensor buffer =
        at::empty({rows, logits_row_elements(vocab, static_cast<std::int64_t>(options.dtype().itemsize()))}, options);
    name_tensor(buffer, "logits", MemoryUse::loss);
    return buffer.narrow(1, 0, vocab);
}

/// One chunk of rows on its way from logits to their gradient.
template<class T>
class LossRows
{
  public:
    /// `first_column`: the token id of column 0.
    LossRows(const at::Tensor& logits_CV, std::int64_t first_column, const std::int64_t* labels, const std::uint8_t* mask,
             const kernels::LossTerms& terms)
        : logits_(logits_CV.mutable_data_ptr<T>()), rows_(logits_CV.size(0)), columns_(logits_CV.size(1)),
          stride_(logits_CV.stride(0)), first_column_(first_column), labels_(labels), mask_(mask), terms_(terms)
    {
    }

    /// Leaves each row as exponentials; a masked row as zeros with empty statistics.
    void exponentials(kernels::RowStatistics* parts) const
    {
        for_rows([&](std::int64_t n) { parts[n] = exponentials_of(n); });
    }

    /// `parts`: what exponentials() said here.
    void gradients(const kernels::RowStatistics* parts, const kernels::RowStatistics* wholes, double scale) const
    {
        for_rows([&](std::int64_t n) { gradient_of(n, parts[n], wholes[n], scale); });
    }

    /// Both in one pass over each row, where it is whole.
    void exponentials_and_gradients(kernels::RowStatistics* wholes, double scale) const
    {
        for_rows(
            [&](std::int64_t n)
            {
                wholes[n] = exponentials_of(n);
                gradient_of(n, wholes[n], wholes[n], scale);
            });
    }

  private:
    template<class Body>
    void for_rows(const Body& body) const
    {
        kernels::parallel_for(rows_, 1,
                              [&](std::int64_t first, std::int64_t last)
                              {
                                  for (std::int64_t n = first; n < last; ++n) { body(n); }
                              });
    }

    std::int64_t label(std::int64_t n) const
    {
        const std::int64_t column = labels_[n] - first_column_;
        return column >= 0 && column < columns_ ? column : -1;
    }

    kernels::RowStatistics exponentials_of(std::int64_t n) const
    {
        T* row = logits_ + n * stride_;
        if (mask_[n] != 0) { return kernels::cross_entropy_row(row, columns_, label(n), terms_.logit_sum()); }
        std::memset(row, 0, static_cast<std::size_t>(columns_) * sizeof(T));
        return {};
    }

    void gradient_of(std::int64_t n, const kernels::RowStatistics& part, const kernels::RowStatistics& whole,
                     double scale) const
    {
        if (mask_[n] == 0) { return; }
        kernels::cross_entropy_gradient_row(logits_ + n * stride_, columns_, label(n), part, whole, terms_, scale);
    }

    T* logits_;
    std::int64_t rows_, columns_, stride_, first_column_;
    const std::int64_t* labels_;
    const std::uint8_t* mask_;
    kernels::LossTerms terms_;
};

/// Statistics of whole rows from those of this rank's columns.
void combine_over_tp(const OpContext& ctx, const std::vector<kernels::RowStatistics>& parts,
                     std::vector<kernels::RowStatistics>& wholes)
{
    constexpr std::int64_t fields = sizeof(kernels::RowStatistics) / sizeof(double);
    const auto rows = static_cast<std::int64_t>(parts.size());
    const std::int64_t tp = ctx.tp->size();
    std::vector<kernels::RowStatistics> all(static_cast<std::size_t>(rows * tp));
    const auto view = [](const std::vector<kernels::RowStatistics>& rows_of)
    {
        BufferView buffer;
        buffer.data = const_cast<kernels::RowStatistics*>(rows_of.data());
        buffer.dtype = Dtype::f64;
        buffer.count = static_cast<std::int64_t>(rows_of.size()) * fields;
        return buffer;
    };
    ctx.tp->all_gather(view(parts), view(all), *ctx.stream).wait(*ctx.stream);
    for (std::int64_t n = 0; n < rows; ++n) { wholes[static_cast<std::size_t>(n)] = kernels::combine(&all[static_cast<std::size_t>(n)], tp, rows); }
}

kernels::LossTerms loss_terms(const HeadLossParams& params, LossMode mode)
{
    kernels::LossTerms terms;
    if (mode == LossMode::evaluate) { return terms; }
    EXPECT(params.label_smoothing >= 0 && params.label_smoothing < 1 && params.z_loss >= 0);
    terms.label_smoothing = params.label_smoothing;
    terms.z_loss = params.z_loss;
    terms.vocab = params.slice.size(params.weight_VD.size(0));
    return terms;
}

/// Statistics of the whole rows into `wholes`; in LossMode::train the logits become their gradient.
void loss_of_rows(const OpContext& ctx, LossMode mode, const HeadLossParams& params, const at::Tensor& logits_CV,
                  const std::int64_t* labels, const std::uint8_t* mask, const kernels::LossTerms& terms,
                  std::vector<kernels::RowStatistics>& wholes)
{
    dispatch_wide(logits_CV.scalar_type(),
                  [&](auto zero)
                  {
                      const LossRows<decltype(zero)> rows(logits_CV, params.slice.first, labels, mask, terms);
                      const bool whole = ctx.tp->size() == 1;
                      if (whole && mode == LossMode::train)
                      {
                          rows.exponentials_and_gradients(wholes.data(), params.scale);
                          return;
                      }
                      if (whole)
                      {
                          rows.exponentials(wholes.data());
                          return;
                      }
                      std::vector<kernels::RowStatistics> parts(wholes.size());
                      rows.exponentials(parts.data());
                      combine_over_tp(ctx, parts, wholes);
                      if (mode == LossMode::train) { rows.gradients(parts.data(), wholes.data(), params.scale); }
                  });
}

}  // namespace

std::int64_t head_loss_chunk_rows(const HeadLossParams& params, std::int64_t num_rows)
{
    const std::int64_t columns = params.slice.columns > 0 ? params.slice.columns : params.weight_VD.size(0);
    const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(sum_type(params.weight_VD.scalar_type())));
    return loss_chunk_rows(num_rows, columns, element_bytes, params.chunks, params.chunk_bytes);
}

HeadLossResult head_loss(const OpContext& ctx, const HeadLossParams& params, LossMode mode, const at::Tensor& x_MD,
                         const at::Tensor& labels_N, const at::Tensor& mask_N, HeadLossGrads& grads)
{
    EXPECT(x_MD.dim() == 2 && x_MD.is_contiguous());
    const at::Tensor x_ND = gather_tokens(ctx, x_MD, "all_x");
    const std::int64_t num_rows = x_ND.size(0);
    const std::int64_t columns = params.weight_VD.size(0);
    EXPECT(labels_N.numel() == num_rows && mask_N.numel() == num_rows);
    const std::int64_t* labels = elements<std::int64_t>(labels_N);
    const std::uint8_t* mask = elements<std::uint8_t>(mask_N);
    check_labels(labels, mask, num_rows, params.slice.size(columns));

    const std::int64_t chunk_rows = head_loss_chunk_rows(params, num_rows);
    const at::Tensor buffer_CV = make_logits_buffer(std::min(chunk_rows, num_rows), columns,
                                                    x_ND.options().dtype(sum_type(x_ND.scalar_type())));
    const kernels::LossTerms terms = loss_terms(params, mode);
    HeadLossResult result;
    for (std::int64_t first = 0; first < num_rows; first += chunk_rows)
    {
        const std::int64_t rows = std::min(chunk_rows, num_rows - first);
        const at::Tensor x_CD = x_ND.narrow(0, first, rows);
        const at::Tensor logits_CV = buffer_CV.narrow(0, 0, rows);
        project_into(x_CD, params.weight_VD, at::Tensor(), logits_CV, "product");
        std::vector<kernels::RowStatistics> statistics(static_cast<std::size_t>(rows));
        loss_of_rows(ctx, mode, params, logits_CV, labels + first, mask + first, terms, statistics);
        for (std::int64_t n = 0; n < rows; ++n)
        {
            if (mask[first + n] == 0) { continue; }
            const kernels::RowStatistics& row = statistics[static_cast<std::size_t>(n)];
            result.loss_sum += kernels::training_loss(row, terms);
            result.cross_entropy_sum += kernels::cross_entropy(row);
            ++result.count;
        }
        if (mode == LossMode::evaluate) { continue; }
        // The weight's gradient reads x before dx is written over it.
        add_weight_gradient(x_CD, logits_CV, grads.weight_VD, "product");
        input_gradient_into(logits_CV, params.weight_VD, x_CD, "product");
        if (!ctx.cuts_tokens) { sum_over_tp(ctx, x_CD); }
    }
    if (mode == LossMode::evaluate) { return result; }
    if (ctx.cuts_tokens) { sum_to_stream(ctx, x_ND, x_MD); }
    result.dx_MD = x_MD;
    return result;
}

}  // namespace plimsoll::nn
