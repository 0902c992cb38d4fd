#pragma once
// One training run in any layout, and its comparison with one rank (decision 22 of the architecture).
//
// A run must lose at least 1.5 nats in its 50 steps: a model that does not learn would hide wrong gradients.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/digest.hpp"
#include "comm/rank_groups.hpp"
#include "comm/thread_communicator.hpp"
#include "support/layout_table.hpp"
#include "torch/model/small_run.hpp"

namespace plimsoll::test
{

constexpr std::int64_t parity_steps = 50;
constexpr std::int64_t parity_seq_len = 16;

/// Whether everything is asked for, as `make -f Makefile.local parity` does: takes minutes.
inline bool whole_matrix()
{
    const char* value = std::getenv("PLIMSOLL_PARITY");
    return value != nullptr && std::string(value) == "all";
}

/// bf16 parts from one rank by its roundings, not by its steps: fewer of them say as much.
inline std::int64_t steps_of(at::ScalarType dtype) { return dtype == at::kBFloat16 && !whole_matrix() ? 20 : parity_steps; }

inline ParallelLayout parity_layout(std::int64_t dp, std::int64_t tp, std::int64_t pp, std::int64_t accumulation, int zero = 1)
{
    ParallelLayout layout;
    layout.dp = dp;
    layout.tp = tp;
    layout.pp = pp;
    layout.zero_stage = zero;
    layout.bucket_bytes = 0;    // every unit by itself
    layout.resident_bytes = 0;  // none, however small
    layout.global_batch = table_batch;
    layout.micro_batch = table_batch / (dp * accumulation);
    return layout;
}

using TensorMap = std::map<std::string, at::Tensor>;

/// What the ranks of one run leave behind; filled under the mutex.
struct ParityRecord
{
    std::mutex mutex;
    std::vector<double> losses, norms;   ///< of every step, the same on all ranks
    std::vector<double> eval_losses;     ///< before and after training
    TensorMap gradients;                 ///< canonical, of the first step
    TensorMap last_gradients;            ///< after the last step
    TensorMap weights;                   ///< canonical, at the end
    /// Digests of every copy of every box at the end: copies must be equal to the bit.
    std::map<std::string, std::vector<std::string>> copies;
};

/// What training adds to the plain loss.
struct ParityTerms
{
    DropoutRates dropout;
    double label_smoothing = 0;
    double z_loss = 0;
};

/// One rank of a run.
class ParityRank
{
  public:
    ParityRank(Communicator& world, const ModelSpec& spec, const ParallelLayout& layout, at::ScalarType dtype,
               const ParityTerms& terms = {})
        : spec_(spec), layout_(layout), groups_(make_rank_groups(world, layout, spec.kv_heads)),
          params_(spec, layout, groups_.coordinate, dtype, install_cpu_allocator())
    {
        at::set_num_threads(1);
        settings_.seq_len = parity_seq_len;
        settings_.micro_batch = layout.micro_batch;
        settings_.global_batch = layout.global_batch;
        settings_.schedule.kind = ScheduleKind::constant;
        settings_.schedule.lr = 3e-3;
        settings_.schedule.total_steps = 1000;
        // Where a gradient is all rounding, Adam makes a whole step of it: not within its own precision of fp32.
        settings_.eps = 1e-6;
        settings_.dropout = terms.dropout;
        settings_.seed = 31;
        params_.initialize(9);
        model_ = std::make_unique<Model>(spec, params_, settings_.seq_len, 2, terms.label_smoothing, terms.z_loss);
        step_ = std::make_unique<TrainStep>(*model_, params_, groups_, settings_,
                                            [this](std::int64_t first, std::int64_t num, TokenBatch& batch)
                                            { synthetic_samples(spec_.vocab, parity_seq_len, first, num, batch); });
    }

    StepResult run(std::int64_t number)
    {
        return step_->run(number, (number - 1) * settings_.global_batch, number, {[] { return false; }, 0.0});
    }

    /// The gradients of step `number`, without an update.
    void gradients(std::int64_t number, ParityRecord& record, TensorMap& into)
    {
        StepTimes times;
        step_->accumulate_gradients(number, (number - 1) * settings_.global_batch, times);
        step_->reduce_gradients();
        // From zero 1 on only this rank's shard holds the sums.
        collect(FlatState::grads, record, into);
        params_.zero_grads();
    }

    void weights(ParityRecord& record) { collect(FlatState::params, record, record.weights); }

    /// The whole tensors of a state, from what each rank owns.
    void collect(FlatState state, ParityRecord& record, TensorMap& into)
    {
        const StateKind kind = state == FlatState::params ? StateKind::model : StateKind::optimizer;
        for (std::int64_t u = 0; u < params_.num_units(); ++u)
        {
            const FlatUnit& unit = params_.flat().units[static_cast<std::size_t>(u)];
            const at::Tensor kept = is_sharded(layout_, kind) ? params_.owned(state, u) : params_.buffer(state, u);
            for (const FlatTensor& tensor : unit.tensors)
            {
                for (const OwnedBox& owned :
                     boxes_of(params_.flat(), layout_, groups_.coordinate, tensor.spec.name, kind))
                {
                    const at::Tensor values =
                        kept.narrow(0, owned.local_offset, owned.box.num_elements()).view(owned.box.shape);
                    const std::lock_guard<std::mutex> lock(record.mutex);
                    at::Tensor& whole = into[tensor.spec.name];
                    if (!whole.defined())
                    {
                        whole = at::full(tensor.spec.shape, std::nan(""), values.options());
                    }
                    at::Tensor part = whole;
                    for (std::size_t d = 0; d < owned.box.shape.size(); ++d)
                    {
                        part = part.narrow(static_cast<std::int64_t>(d), owned.box.offset[d], owned.box.shape[d]);
                    }
                    part.copy_(values);
                }
            }
        }
    }

    void copies(ParityRecord& record)
    {
        for (std::int64_t u = 0; u < params_.num_units(); ++u)
        {
            const FlatUnit& unit = params_.flat().units[static_cast<std::size_t>(u)];
            if (params_.comes_and_goes(FlatState::params, u)) { continue; }  // a shard has no copy
            for (const FlatTensor& tensor : unit.tensors)
            {
                const at::Tensor values = params_.view(FlatState::params, tensor.spec.name).contiguous();
                const std::string bytes(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
                const std::lock_guard<std::mutex> lock(record.mutex);
                record.copies[fmt::format("{} from {}", tensor.spec.name, fmt::join(tensor.box.offset, ","))].push_back(
                    sha256_hex(bytes));
            }
        }
    }

    RankGroups& groups() { return groups_; }
    Model& model() { return *model_; }
    ShardedParams& params() { return params_; }

  private:
    c10::AutoGradMode no_autograd_{false};
    ModelSpec spec_;
    ParallelLayout layout_;
    StepSettings settings_;
    RankGroups groups_;
    ShardedParams params_;
    std::unique_ptr<Model> model_;
    std::unique_ptr<TrainStep> step_;
};

/// The whole run of one rank: gradients of the first step, `steps` steps, gradients and weights at the end.
inline void parity_body(Communicator& world, const ModelSpec& spec, const ParallelLayout& layout, at::ScalarType dtype,
                        std::int64_t steps, ParityRecord& record, const ParityTerms& terms = {})
{
    ParityRank rank(world, spec, layout, dtype, terms);
    rank.gradients(1, record, record.gradients);
    std::vector<double> losses, norms;
    for (std::int64_t number = 1; number <= steps; ++number)
    {
        const StepResult result = rank.run(number);
        losses.push_back(result.loss());
        norms.push_back(result.grad_norm);
    }
    rank.copies(record);
    rank.weights(record);
    rank.gradients(steps + 1, record, record.last_gradients);
    const std::lock_guard<std::mutex> lock(record.mutex);
    if (record.losses.empty())
    {
        record.losses = losses;
        record.norms = norms;
    }
    EXPECT_EQ(record.losses, losses) << "rank " << world.rank() << " saw other losses";
    EXPECT_EQ(record.norms, norms) << "rank " << world.rank() << " saw other norms";
}

/// A run in `layout` over threads.
inline std::unique_ptr<ParityRecord> record_of(const std::string& model, const ParallelLayout& layout, at::ScalarType dtype,
                                               std::int64_t steps, const ParityTerms& terms = {})
{
    auto record = std::make_unique<ParityRecord>();
    const ModelSpec spec = table_model(model);
    run_ranks(layout.world(), [&](Communicator& world) { parity_body(world, spec, layout, dtype, steps, *record, terms); });
    return record;
}

inline void expect_equal_tensors(const TensorMap& got, const TensorMap& expected)
{
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [name, tensor] : expected) { EXPECT_TRUE(at::equal(tensor, got.at(name))) << name; }
}

inline void expect_equal_to_the_bit(const ParityRecord& got, const ParityRecord& expected)
{
    EXPECT_EQ(got.losses, expected.losses);
    EXPECT_EQ(got.norms, expected.norms);
    expect_equal_tensors(got.weights, expected.weights);
}

/// What several ranks hold of the same parameters.
inline void expect_equal_copies(const ParityRecord& record)
{
    for (const auto& [place, digests] : record.copies)
    {
        for (const std::string& digest : digests) { EXPECT_EQ(digest, digests.front()) << "copies differ: " << place; }
    }
}

inline double relative_difference(double got, double expected) { return std::abs(got - expected) / expected; }

/// A gradient whose true value is zero: only its rounding would be compared.
inline bool is_key_bias(const std::string& name) { return name.find("k_proj.bias") != std::string::npos; }

/// Largest relative differences of a run.
struct ParityFigures
{
    double loss = 0, norm = 0;  ///< over all steps
    double gradient = 0;        ///< of the first step: norm of a tensor's difference over its norm + `floor` of the whole gradient's
};

/// fp32: rounding of a tensor of nearly cancelling terms is that of the terms.
inline double gradient_floor(bool fp64) { return fp64 ? 0.01 : 0.02; }

/// The largest difference as in ParityFigures::gradient; larger ones than `gate` are failures by name.
inline double expect_gradients_close(const TensorMap& got, const TensorMap& expected, double gate, double floor)
{
    EXPECT_EQ(got.size(), expected.size());
    double squares = 0, largest = 0;
    for (const auto& entry : expected) { squares += entry.second.to(at::kDouble).pow(2).sum().item<double>(); }
    const double global = std::sqrt(squares);
    for (const auto& [name, tensor] : expected)
    {
        if (is_key_bias(name) && tensor.scalar_type() == at::kFloat) { continue; }
        const at::Tensor other = got.at(name).to(at::kDouble);
        const double norm = tensor.to(at::kDouble).norm().item<double>();
        const double difference = (other - tensor.to(at::kDouble)).norm().item<double>() / (norm + floor * global);
        EXPECT_LE(difference, gate) << name << " of norm " << norm << ", global " << global;
        largest = std::max(largest, difference);
    }
    return largest;
}

/// The gates of decision 22, for the steps that `got` has.
inline ParityFigures expect_parity(const ParityRecord& got, const ParityRecord& expected, at::ScalarType dtype)
{
    ParityFigures figures;
    EXPECT_FALSE(got.losses.empty());
    EXPECT_LE(got.losses.size(), expected.losses.size());
    const bool fp64 = dtype == at::kDouble;
    for (std::size_t i = 0; i < got.losses.size(); ++i)
    {
        const double norm_gate = fp64 ? 1e-11 : i < 10 ? 1e-5 : 3e-4;
        const double loss = relative_difference(got.losses[i], expected.losses[i]);
        const double norm = relative_difference(got.norms[i], expected.norms[i]);
        EXPECT_LE(loss, fp64 ? 1e-11 : 1e-5) << "loss of step " << i + 1;
        EXPECT_LE(norm, norm_gate) << "norm of step " << i + 1;
        figures.loss = std::max(figures.loss, loss);
        figures.norm = std::max(figures.norm, norm);
    }
    if (!got.gradients.empty())
    {
        figures.gradient =
            expect_gradients_close(got.gradients, expected.gradients, fp64 ? 1e-11 : 5e-6, gradient_floor(fp64));
    }
    // After many updates weights differ by their own rounding: only fp64 says something of the gradients then.
    if (fp64 && !got.last_gradients.empty() && got.losses.size() == expected.losses.size())
    {
        expect_gradients_close(got.last_gradients, expected.last_gradients, 1e-11, 1.0);
    }
    expect_equal_copies(got);
    return figures;
}

inline const char* parity_type_name(at::ScalarType dtype)
{
    return dtype == at::kDouble ? "fp64" : dtype == at::kFloat ? "fp32" : "bf16";
}

/// The run that all others are compared with; made once per model, type and size of a micro-batch.
inline const ParityRecord& one_rank(const std::string& name, at::ScalarType dtype, std::int64_t micro_batch = table_batch)
{
    static std::map<std::string, std::unique_ptr<ParityRecord>> runs;
    std::unique_ptr<ParityRecord>& run = runs[fmt::format("{} {} {}", name, parity_type_name(dtype), micro_batch)];
    if (run == nullptr)
    {
        run = std::make_unique<ParityRecord>();
        const auto world = make_self_communicator("world");
        parity_body(*world, table_model(name), parity_layout(1, 1, 1, table_batch / micro_batch, 0), dtype, steps_of(dtype),
                    *run);
        const double learned = steps_of(dtype) == parity_steps ? 1.5 : 0.5;
        EXPECT_LT(run->losses.back(), run->losses.front() - learned) << "the model does not learn";
        EXPECT_GT(*std::max_element(run->norms.begin(), run->norms.end()), 1.0) << "no gradient was clipped";
    }
    return *run;
}

}  // namespace plimsoll::test
