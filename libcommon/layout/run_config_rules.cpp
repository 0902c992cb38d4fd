#include "layout/run_config.hpp"

#include <algorithm>

namespace plimsoll
{

namespace
{

void find_indeterminate(const RunConfig::Run& run, std::vector<std::string>& faults)
{
    if (run.threads == 0)
    {
        faults.push_back("run.deterministic needs run.threads (by default a rank takes its share of the machine's cores, and "
                         "matrix products are cut, and so rounded, by the number of threads). set threads in [run]");
    }
    if (run.device == "cuda")
    {
        faults.push_back("run.deterministic is for device cpu (NCCL and CUDA kernels choose the order of their sums)");
    }
}

}  // namespace

Shuffle parse_shuffle(const std::string& text)
{
    Shuffle shuffle;
    if (text == "global") { return shuffle; }
    shuffle.kind = Shuffle::Kind::none;
    if (text == "none") { return shuffle; }
    const std::string window = "window:";
    VALIDATE(text.rfind(window, 0) == 0, ConfigError, "'{}' is no order (global, none, or window:N with N tokens)", text);
    shuffle.kind = Shuffle::Kind::window;
    shuffle.window_tokens = parse_count(text.substr(window.size()));
    VALIDATE(shuffle.window_tokens > 0, ConfigError, "'{}' is an empty window (at least 1 token)", text);
    return shuffle;
}

std::string shuffle_text(const Shuffle& shuffle)
{
    switch (shuffle.kind)
    {
        case Shuffle::Kind::global: return "global";
        case Shuffle::Kind::none: return "none";
        case Shuffle::Kind::window: break;
    }
    return fmt::format("window:{}", shuffle.window_tokens);
}

bool RunConfig::Eval::is_planned() const
{
    const auto has = [](const std::vector<std::string>& paths, const Span& distance)
    { return !paths.empty() && distance.unit != Span::Unit::never; };
    return has(shards, every) ||
           std::any_of(sets.begin(), sets.end(), [&](const EvalSet& set) { return has(set.shards, set.every); });
}

void validate_run_config(const RunConfig& config)
{
    std::vector<std::string> faults;
    if (config.run.watchdog_s <= 0) { faults.push_back("run.watchdog must be above 0"); }
    if (config.run.deterministic) { find_indeterminate(config.run, faults); }
    const RunConfig::Train& train = config.train;
    const int lengths = (train.tokens > 0 ? 1 : 0) + (train.steps > 0 ? 1 : 0) + (train.epochs > 0 ? 1 : 0);
    if (lengths == 0) { faults.push_back("the run has no length. set one of tokens, steps, epochs in [train]"); }
    if (lengths > 1)
    {
        std::vector<std::string> given;
        if (train.tokens > 0) { given.push_back(fmt::format("tokens {}", train.tokens)); }
        if (train.steps > 0) { given.push_back(fmt::format("steps {}", train.steps)); }
        if (train.epochs > 0) { given.push_back(fmt::format("epochs {}", train.epochs)); }
        faults.push_back(fmt::format("the run has {} lengths ({}). keep one", lengths, fmt::join(given, ", ")));
    }
    if (train.min_lr > train.lr) { faults.push_back(fmt::format("min-lr {} is above lr {}", train.min_lr, train.lr)); }
    const bool in_percent = train.warmup.unit == Span::Unit::percent && train.decay.unit == Span::Unit::percent;
    if (in_percent && train.warmup.amount + train.decay.amount > 100)
    {
        faults.push_back(fmt::format("warmup {}% + decay {}% = {}% of the run (more than all of it)",
                                     train.warmup.amount, train.decay.amount,
                                     train.warmup.amount + train.decay.amount));
    }
    if (config.data.sources.empty()) { faults.push_back("there is no training data. set shards in [data.NAME]"); }
    if (config.eval.every.unit != Span::Unit::never && config.eval.shards.empty() && config.eval.sets.empty())
    {
        faults.push_back("eval.every is set, eval.shards is not (nothing to validate on). set shards in [eval]");
    }
    if (config.data.fim.rate > 0 && config.data.fim.prefix < 0)
    {
        faults.push_back("data.fim-rate is set, data.fim-tokens is not (ids of the prefix, suffix and middle mark). set fim-tokens in [data]");
    }
    VALIDATE(faults.empty(), ConfigError, "{}", fmt::join(faults, "; "));
}

ResumeRule resume_rule(const std::string& section_dot_key)
{
    struct Row
    {
        const char* key;  ///< a whole key, or a section with its dot
        ResumeRule rule;
    };
    // The first row that fits counts.
    static constexpr Row rows[] = {
        {"run.seed", ResumeRule::guarded},
        {"run.", ResumeRule::free},
        {"layout.global-batch", ResumeRule::guarded},
        {"layout.", ResumeRule::free},
        {"train.optimizer", ResumeRule::guarded},
        {"train.precision", ResumeRule::guarded},
        {"train.recompute", ResumeRule::free},
        {"train.check-replicas-every", ResumeRule::free},
        {"train.loss-chunks", ResumeRule::free},
        {"train.", ResumeRule::run_file},
        {"optimizer.", ResumeRule::run_file},
        {"eval.", ResumeRule::free},
        {"checkpoint.", ResumeRule::free},
        {"cluster.", ResumeRule::free},
    };
    const std::string limit = ".max-epochs";
    if (section_dot_key.size() > limit.size() &&
        section_dot_key.compare(section_dot_key.size() - limit.size(), limit.size(), limit) == 0)
    {
        return ResumeRule::run_file;
    }
    for (const Row& row : rows)
    {
        const std::string key = row.key;
        const bool is_section = key.back() == '.';
        if (is_section ? section_dot_key.rfind(key, 0) == 0 : section_dot_key == key) { return row.rule; }
    }
    return ResumeRule::guarded;
}

}  // namespace plimsoll
