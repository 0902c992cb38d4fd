#include "layout/run_config_limits.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace plimsoll
{

namespace
{

struct NotYet
{
    const char* key;                 ///< "section.key"; "section.*": each of its keys
    std::vector<std::string> built;  ///< values that work; none: the key is refused
    const char* hint;
};

/// A version that builds something removes its row.
const std::vector<NotYet>& not_yet()
{
    static const std::vector<NotYet> rows = {
        {"layout.cp", {"1"}, "use a shorter seq-len"},
        {"layout.ep", {"1"}, ""},
        {"train.optimizer", {"adamw"}, ""},
        {"train.precision", {"fp32", "fp64", "bf16"}, ""},
        {"train.attention-dropout", {"0"}, "fused attention kernels refuse it or mask in an order of their own; use hidden-dropout"},
        {"train.recompute", {"none"}, "a smaller micro-batch needs less memory"},
        {"model.init-from", {}, ""},
        {"model.trainable", {}, "all tensors learn"},
        {"lora.*", {}, "all tensors learn"},
        {"optimizer.*", {}, "settings for all tensors stand in [train]"},
    };
    return rows;
}

bool covers(const std::string& pattern, const Option& option)
{
    const std::string any_key = ".*";
    if (pattern.size() > any_key.size() && pattern.compare(pattern.size() - any_key.size(), any_key.size(), any_key) == 0)
    {
        const std::string section = pattern.substr(0, pattern.size() - any_key.size());
        return option.section().substr(0, option.section().find('.')) == section;
    }
    return option.name() == pattern;
}

std::string hint_of(const NotYet& row, const Option& option)
{
    if (option.section().rfind("optimizer", 0) != 0) { return row.hint; }
    for (const char* key : {"lr", "betas", "eps", "weight-decay"})
    {
        if (option.key() == key) { return fmt::format("{}: use --{}", row.hint, key); }
    }
    return row.hint;
}

}  // namespace

void limit_run_config(OptionSet& options)
{
    for (const Option* declared : options.all())
    {
        for (const NotYet& row : not_yet())
        {
            if (covers(row.key, *declared)) { options.at(declared->name()).built_only(row.built, hint_of(row, *declared)); }
        }
    }
}

void add_run_config_hints(OptionSet& options)
{
    const std::vector<std::pair<const char*, const char*>> hints = {
        {"bf16", "--precision bf16"},
        {"fp16", "--precision fp32 (fp16 is not available in this version)"},
        {"fp32", "--precision fp32"},
        {"fp8-format", "--precision fp32 (fp8 is not available in this version)"},
        {"fp8", "--precision fp32 (fp8 is not available in this version)"},
        {"use-distributed-optimizer", "--zero 1"},
        {"use-torch-fsdp2", "--zero 3"},
        {"use-megatron-fsdp", "--zero 3"},
        {"fsdp", "--zero 3"},
        {"save", "[run] dir: checkpoints are written below it"},
        {"checkpoint.folder", "[run] dir: checkpoints are written below it"},
        {"checkpoints-path", "[run] dir: checkpoints are written below it"},
        {"train-samples", "--tokens (samples x seq-len) or --steps"},
        {"gradient-accumulation-steps", "--global-batch: accumulation is global-batch / (dp x micro-batch)"},
        {"batch-accumulation-per-replica", "--global-batch: accumulation is global-batch / (dp x micro-batch)"},
        {"adam-beta1", "--betas 0.9 0.95"},
        {"adam-beta2", "--betas 0.9 0.95"},
        {"num-layers", "--model: the sizes stand in the model's config.json"},
        {"hidden-size", "--model: the sizes stand in the model's config.json"},
        {"num-attention-heads", "--model: the sizes stand in the model's config.json"},
        {"ffn-hidden-size", "--model: the sizes stand in the model's config.json"},
        {"num-layers-per-virtual-pipeline-stage", "--virtual-stages: layers / (pp x layers of a chunk)"},
        {"num-layers-in-first-pipeline-stage", "--pp-split 7,9,9,7"},
        {"decoder-first-pipeline-num-layers", "--pp-split 7,9,9,7"},
        {"decoder-last-pipeline-num-layers", "--pp-split 7,9,9,7"},
        {"enable-zero-bubble", "--pp-schedule zb-h1"},
        {"zero-bubble-v-schedule", "--pp-schedule zbv"},
        {"split", "plimsoll-shard --validation 0.5%"},
        {"tokenizer-type", "plimsoll-shard --tokenizer"},
        {"tokenizer-model", "plimsoll-shard --tokenizer"},
        {"vocab-file", "plimsoll-shard --tokenizer"},
        {"deepspeed-config", "--config: a run file (INI)"},
        {"job.config-file", "--config"},
        {"config-file", "--config"},
        {"exit-interval", "--stop-at-step"},
        {"exit-duration-in-mins", "--stop-at-step, or let the batch system send USR2 ahead of its limit (--signal=USR2@300)"},
        {"num-workers", "nothing: a rank reads its own tokens, which takes no time beside a step"},
        {"local-rank", "nothing: mpiexec and srun tell each rank its place"},
        {"nproc-per-node", "mpiexec -n N"},
    };
    for (const auto& hint : hints) { options.add_peer_hint(hint.first, hint.second); }
}

}  // namespace plimsoll
