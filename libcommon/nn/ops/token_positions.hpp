#pragma once
/// Positions of a batch's tokens: within their sequence, or with document masks within their document.

#include <algorithm>

#include "nn/op_context.hpp"

namespace plimsoll::nn
{

/// Asked for in ascending order it takes a comparison each, in any other a search. One thread at a time; copies are cheap.
class TokenPositions
{
  public:
    explicit TokenPositions(const OpContext& ctx) : seq_len_(ctx.seq_len), starts_(ctx.document_starts) {}

    /// Of token `n` of the B S.
    std::int64_t at(std::int64_t n)
    {
        if (starts_ == nullptr) { return n % seq_len_; }
        const auto document = [&](std::size_t i) { return (*starts_)[i]; };
        if (n < document(current_) || n >= document(current_ + 1))
        {
            const auto behind = std::upper_bound(starts_->begin(), starts_->end() - 1, n);
            current_ = static_cast<std::size_t>(behind - starts_->begin()) - 1;
        }
        return n - document(current_);
    }

  private:
    std::int64_t seq_len_;
    const std::vector<std::int64_t>* starts_;
    std::size_t current_ = 0;
};

}  // namespace plimsoll::nn
