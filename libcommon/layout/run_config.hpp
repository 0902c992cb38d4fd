#pragma once
/// The run file's values, typed: one schema of all sections, keys, units and defaults that every tool validates
/// the whole file against. A tool uses its part. docs/run_file.md is printed from the schema.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/cli.hpp"
#include "base/units.hpp"

namespace plimsoll
{

struct DataSource
{
    std::string name;                 ///< NAME of [data.NAME], empty for [data] shards
    std::vector<std::string> shards;  ///< expanded, sorted, absolute; "megatron:PREFIX" for a pair of files
    double weight = 1.0;
    double max_epochs = 0;            ///< 0: no limit
    std::int64_t vocab = 0;           ///< of shards that do not say (megatron:); 0: the model's
};

/// Order of the samples of a source.
struct Shuffle
{
    enum class Kind { global, window, none };
    Kind kind = Kind::global;
    std::int64_t window_tokens = 0;  ///< of a window
};

/// global, none or window:N. @throws ConfigError
Shuffle parse_shuffle(const std::string& text);
std::string shuffle_text(const Shuffle& shuffle);

/// Fill in the middle, of training data.
struct Fim
{
    double rate = 0;      ///< share of the documents that are rearranged
    double spm_rate = 0.5; ///< share of those that have the suffix first
    std::int64_t prefix = -1, suffix = -1, middle = -1; ///< ids of the marks
};

/// [eval.NAME]
struct EvalSet
{
    std::string name;
    std::vector<std::string> shards;
    Span every;               ///< as [eval] every when the section does not say
    std::int64_t tokens = -1; ///< -1: all; as [eval] tokens when the section does not say
};

struct RunConfig
{
    struct Run
    {
        std::string name = "run";
        std::string dir;  ///< default runs/<name> under the working directory; absolute after parsing
        std::uint64_t seed = 1;
        std::string device = "cpu";   ///< cpu | cuda
        std::int64_t threads = 0;     ///< per rank; 0: cores of this node / local ranks
        std::int64_t log_every = 10;  ///< steps between table rows
        double watchdog_s = 300;      ///< seconds without progress of any rank in a group that end the job
        bool signal_usr1 = false;     ///< USR1 also means stop early
        bool deterministic = false;   ///< refuse what would keep a repetition from having the same bits
    } run;

    struct Model
    {
        std::string name;  ///< resolved path of config.json
    } model;

    struct Layout
    {
        std::int64_t dp = 0;  ///< 0: auto = world / (tp pp cp)
        std::int64_t tp = 1, pp = 1, cp = 1, ep = 1;
        int zero = 0;
        std::int64_t dp_shard = 0;  ///< 0: all of dp
        std::int64_t bucket = std::int64_t{25} << 20;   ///< bytes
        std::int64_t resident = std::int64_t{1} << 20;  ///< bytes
        bool prefetch = true;
        std::string axis_order = "tp,cp,ep,dp,pp";
        bool tp_across_nodes = false;
        bool sequence_parallel = false;
        std::int64_t micro_batch = 1;   ///< sequences
        std::int64_t global_batch = 1;  ///< sequences
        std::string schedule = "1f1b";  ///< a PipelineKind's name
        std::int64_t virtual_stages = 0;  ///< 0: what the schedule needs
        std::string pp_split = "even";  ///< even | auto | 7,9,9,7
    } layout;

    struct Data
    {
        std::int64_t seq_len = 0;
        Shuffle shuffle;
        std::string packing = "concat";  ///< concat | best-fit
        bool document_masks = false;     ///< attention and positions keep within a document
        Fim fim;
        std::vector<DataSource> sources;
    } data;

    struct Train
    {
        std::int64_t tokens = 0, steps = 0;  ///< exactly one of tokens, steps, epochs is set
        double epochs = 0;
        std::string optimizer = "adamw";
        double beta1 = 0.9, beta2 = 0.95;
        double eps = 1e-8;
        double weight_decay = 0.1;
        double clip = 1.0;  ///< global norm; 0: off
        double lr = 0;
        double min_lr = 0;                ///< absolute, after "0.1x" was resolved
        std::string schedule = "cosine";  ///< cosine | wsd | constant
        Span warmup, decay;
        std::string precision = "fp32";  ///< fp32 | fp64 | bf16
        std::string recompute = "none";
        double label_smoothing = 0;    ///< in [0, 1)
        double z_loss = 0;             ///< coefficient of log-sum-exp squared
        double hidden_dropout = 0, embedding_dropout = 0, attention_dropout = 0;  ///< each in [0, 1)
        std::int64_t check_replicas_every = 0;  ///< steps; 0: off
        std::int64_t loss_chunks = 0;  ///< 0: chosen so that a chunk's logits take at most 64 MiB
    } train;

    struct Eval
    {
        std::vector<std::string> shards;
        Span every;
        std::int64_t tokens = -1;      ///< -1: all
        std::int64_t micro_batch = 0;  ///< 0: as layout.micro_batch
        std::vector<EvalSet> sets;     ///< the named ones
        /// Whether any set is validated on in the run.
        bool is_planned() const;
    } eval;

    struct Checkpoint
    {
        Span every;
        std::int64_t keep_last = 0;            ///< 0: all
        std::string resume = "auto";           ///< auto | never | DIR
        std::string on_save_failure = "stop";  ///< warn | stop
    } checkpoint;

    struct Cluster
    {
        std::string file;
        std::int64_t memory_limit = 0;  ///< bytes of a rank; 0: that of `file`, else the machine's / local ranks
    } cluster;
};

/// Declares every key of every section into `options`, bound to `config`. Short flags are added where they are unique.
void declare_run_config(OptionSet& options, RunConfig& config);

/// Checks that need more than one key: exactly one length, warm-up + decay <= 100 %, a global batch that micro-batch
/// divides. @throws ConfigError
void validate_run_config(const RunConfig& config);

/// How a changed key is treated on resume.
enum class ResumeRule
{
    free,      ///< layout, micro-batch, device, checkpoint, logging
    run_file,  ///< lr, schedule, length, decay: the run file's value counts, the change is printed
    guarded,   ///< model, tokenizer, data, seq-len, global batch, seed: refused without --allow-change KEY
};
ResumeRule resume_rule(const std::string& section_dot_key);

}  // namespace plimsoll
