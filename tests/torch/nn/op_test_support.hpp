#pragma once
// Inputs, comparison and thread guards of the operation tests.
//
// Oracle: C++ autograd in fp64 over composite ATen operations, on the inputs as the tested type has rounded them. So
// what is compared is the tested operation's own rounding. Error = largest difference / largest magnitude of the
// oracle's tensor. An fp64 sum of K products has a rounding error of about sqrt(K) 2^-53, a chain of a few of them
// stays below 1e-13 for K <= 10^4: gate 1e-12. In fp32 the same chain is 2^29 times coarser, 5e-5 at worst and
// about 3e-7 typically: gate 3e-6 (ten times the typical, five times tighter than the worst).

// Without it TensorOperators.h takes in every operation.
#ifndef AT_PER_OPERATOR_HEADERS
#define AT_PER_OPERATOR_HEADERS
#endif
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include <vector>

#include "nn/op_context.hpp"

namespace plimsoll::nn
{

inline double tolerance(at::ScalarType type) { return type == at::kDouble ? 1e-12 : 3e-6; }

inline OpContext context(std::int64_t batch, std::int64_t seq_len)
{
    static Stream stream;
    static const std::unique_ptr<Communicator> alone = make_self_communicator("tp");
    OpContext ctx;
    ctx.stream = &stream;
    ctx.tp = alone.get();
    ctx.batch = batch;
    ctx.seq_len = seq_len;
    return ctx;
}

inline at::Tensor random(std::vector<std::int64_t> shape, at::ScalarType type, double scale = 1.0)
{
    return (at::randn(shape, at::TensorOptions().dtype(at::kDouble)) * scale).to(type);
}

/// A weight of `fan_in` inputs that keeps the size of what passes through it.
inline at::Tensor random_weight(std::int64_t out, std::int64_t fan_in, at::ScalarType type)
{
    return random({out, fan_in}, type, 1.0 / std::sqrt(double(fan_in)));
}

/// An autograd leaf in fp64 with the same values; undefined stays undefined.
inline at::Tensor leaf(const at::Tensor& tensor)
{
    if (!tensor.defined()) { return at::Tensor(); }
    at::Tensor copy = tensor.detach().to(at::kDouble).clone();
    return copy.set_requires_grad(true);
}

inline double error_of(const at::Tensor& actual, const at::Tensor& oracle)
{
    EXPECT_TRUE(actual.defined() && oracle.defined());
    EXPECT_EQ(actual.numel(), oracle.numel());
    if (actual.numel() == 0) { return 0; }
    const at::Tensor expected = oracle.detach().to(at::kDouble).reshape(actual.sizes());
    const double size = expected.abs().max().item<double>();
    const double difference = (actual.detach().to(at::kDouble) - expected).abs().max().item<double>();
    return difference / std::max(size, 1e-30);
}

#define EXPECT_CLOSE(actual, oracle, gate) EXPECT_LE(error_of((actual), (oracle)), (gate))

/// Sets the number of ATen threads for a scope.
class ThreadsGuard
{
  public:
    explicit ThreadsGuard(int threads) : before_(at::get_num_threads()) { at::set_num_threads(threads); }
    ~ThreadsGuard() { at::set_num_threads(before_); }
    ThreadsGuard(const ThreadsGuard&) = delete;
    ThreadsGuard& operator=(const ThreadsGuard&) = delete;

  private:
    int before_;
};

constexpr at::ScalarType both_types[] = {at::kDouble, at::kFloat};

}  // namespace plimsoll::nn
