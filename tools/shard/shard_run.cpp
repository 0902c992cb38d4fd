#include "shard_run.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/cores.hpp"
#include "base/error.hpp"
#include "base/exit_as.hpp"
#include "base/log.hpp"
#include "base/progress.hpp"
#include "base/signals.hpp"
#include "base/units.hpp"
#include "comm/exchange.hpp"
#include "comm/launch.hpp"
#include "comm/rank_activity.hpp"
#include "comm_mpi/run_with_mpi.hpp"
#include "io/corpus_output.hpp"
#include "io/file.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "report.hpp"
#include "stoppable_progress.hpp"

namespace plimsoll
{

namespace
{

void print_report(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

/// What is seen while it runs: one line of the input, then the progress.
class ShardObserver
{
  public:
    /// `visible`: of several ranks one speaks for all.
    ShardObserver(const CorpusOptions& options, bool visible) : options_(options), visible_(visible) {}

    void operator()(const CorpusProgress& now)
    {
        if (visible_ && !progress_) { start(now); }
        VALIDATE(!signals_.requested(), Interrupted, "stopped by {} ({}). run the same command again{}",
                 signals_.name(), now.kept ? "what is done is kept" : "nothing was written",
                 now.kept ? " to go on" : "");
        if (!progress_) { return; }
        const double seconds =
            std::max(1e-3, std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
        const double text = static_cast<double>(now.text_bytes - first_text_bytes_);
        progress_->update(now.bytes, fmt::format("{}/thread", format_rate(text / seconds / options_.threads)));
    }

    void finish()
    {
        if (progress_) { progress_->finish(); }
    }

  private:
    void start(const CorpusProgress& now)
    {
        const auto tokenizer = make_tokenizer(options_.tokenizer, options_.tokenizer_options);
        Log log(stderr);
        log.row("input", fmt::format("{} file{}, {}          tokenizer  {}", format_grouped(now.files),
                                     now.files == 1 ? "" : "s", format_storage(static_cast<double>(now.total_bytes)),
                                     tokenizer_line(tokenizer->name(), tokenizer->vocab(), tokenizer->fingerprint())));
        if (now.bytes > 0)
        {
            log.row("resumed", fmt::format("behind {} of the input", format_storage(static_cast<double>(now.bytes))));
        }
        first_text_bytes_ = now.text_bytes;
        progress_ = std::make_unique<Progress>(stderr, kind_of(stderr), "shard", ProgressUnit::bytes, now.total_bytes);
    }

    const CorpusOptions& options_;
    bool visible_;
    StopSignals signals_{Usr1::untouched};
    std::unique_ptr<Progress> progress_;
    std::int64_t first_text_bytes_ = 0;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string done_line(const CorpusOptions& options, const CorpusReport& report)
{
    std::int64_t documents = 0;
    std::int64_t tokens = 0;
    for (const CorpusShard& shard : report.manifest.shards)
    {
        documents += shard.info.num_documents;
        tokens += shard.info.num_tokens;
    }
    return fmt::format("part {} of {} is done already: {}, {} documents, {} tokens\n", options.part, options.num_parts,
                       options.out, format_grouped(documents), format_grouped(tokens));
}

ExitCode run_alone(const ShardRun& run, const CorpusOptions& options)
{
    ShardObserver observer(options, true);
    const CorpusReport report = shard_corpus(options, [&](const CorpusProgress& now) { observer(now); });
    observer.finish();
    if (report.done_before) { print_report(done_line(options, report)); }
    else
    {
        print_report(run.json ? corpus_report_json(report, options.out, options.mode)
                              : corpus_report_text(report, options.out, options.mode));
    }
    return ExitCode::done;
}

/// Beside OUT, where the parts of the ranks wait for each other.
std::string parts_directory(const std::string& out)
{
    std::string path = out;
    while (path.size() > 1 && path.back() == '/') { path.pop_back(); }
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." + path + ".parts"
                                      : path.substr(0, slash + 1) + "." + path.substr(slash + 1) + ".parts";
}

CorpusReport merge_parts(const std::vector<std::string>& parts, const std::string& out,
                         CorpusOptions::Existing existing, RankActivity* activity = nullptr)
{
    MergeOptions options;
    options.parts = parts;
    options.out = out;
    options.existing = existing;
    StoppableProgress progress("merge");
    const CorpusReport report = merge_corpora(options,
                                              [&](std::int64_t done, std::int64_t total)
                                              {
                                                  if (activity != nullptr) { activity->tick(); }
                                                  progress.update(total, done);
                                              });
    progress.finish();
    return report;
}

ExitCode run_ranks(const ShardRun& run, Communicator& world)
{
    const bool first = world.rank() == 0;
    const auto existing = run.corpus.existing == CorpusOptions::Existing::replace ? CorpusOutput::Existing::replace
                                                                                  : CorpusOutput::Existing::refuse;
    agree(world,
          [&]
          {
              VALIDATE(run.corpus.num_parts == 0, UsageError,
                       "--num-shards {} under {} ranks (each would be a task of its own). "
                       "leave it out, or start one rank a task",
                       run.corpus.num_parts, world.size());
              VALIDATE(run.corpus.mode == CorpusOptions::Mode::write, UsageError,
                       "--dry-run under {} ranks (one reads it all). start one rank", world.size());
              if (first) { check_corpus_output(run.out, existing); }
          });
    const std::string shared = parts_directory(run.out);
    CorpusOptions options = run.corpus;
    if (options.threads == 0)
    {
        // Cores that the launcher bound this rank to, else its share.
        const int usable = allowed_cores();
        const bool bound = usable < static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
        const auto local = static_cast<int>(std::min(read_launch().local_ranks, world.size()));
        options.threads = bound ? usable : std::max(1, usable / local);
    }
    options.num_parts = world.size();
    options.part = world.rank();
    options.out = corpus_part_directory(shared, options.part, options.num_parts);
    options.existing = CorpusOptions::Existing::refuse;
    const auto start = std::chrono::steady_clock::now();
    agree(world,
          [&]
          {
              if (first && options.unfinished == CorpusOptions::Unfinished::restart) { remove_tree(shared); }
          });
    CorpusReport mine;
    agree(world,
          [&]
          {
              ShardObserver observer(options, first);
              mine = shard_corpus(options,
                                  [&](const CorpusProgress& now)
                                  {
                                      // The others wait for the slowest; that it still moves is what they look at.
                                      world.activity().tick();
                                      observer(now);
                                  });
              observer.finish();
          });
    agree(world,
          [&]
          {
              if (!first) { return; }
              std::vector<std::string> parts;
              for (std::int64_t i = 0; i < world.size(); ++i)
              {
                  parts.push_back(corpus_part_directory(shared, i, world.size()));
              }
              CorpusReport report = merge_parts(parts, run.out, run.corpus.existing, &world.activity());
              remove_tree(shared);
              report.threads = options.threads * static_cast<int>(world.size());
              report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
              print_report(run.json ? corpus_report_json(report, run.out, run.corpus.mode)
                                    : corpus_report_text(report, run.out, run.corpus.mode));
          });
    return ExitCode::done;
}

}  // namespace

ExitCode run_shard(const ShardRun& run)
{
    return run_with_mpi(
        [&](Communicator& world)
        {
            if (world.size() > 1) { return run_ranks(run, world); }
            CorpusOptions options = run.corpus;
            if (options.threads == 0) { options.threads = allowed_cores(); }
            if (options.num_parts > 0 && !options.out.empty())
            {
                options.out = corpus_part_directory(options.out, options.part, options.num_parts);
            }
            return run_alone(run, options);
        });
}

ExitCode run_merge(const MergeRun& run)
{
    std::vector<std::string> parts;
    for (const std::string& pattern : run.parts)
    {
        std::vector<std::string> found = expand_glob(pattern);
        std::sort(found.begin(), found.end());
        parts.insert(parts.end(), found.begin(), found.end());
    }
    const auto existing = run.force ? CorpusOptions::Existing::replace : CorpusOptions::Existing::refuse;
    const CorpusReport report =
        exit_as<FormatError>(ExitCode::fatal, [&] { return merge_parts(parts, run.out, existing); });
    print_report(run.json ? corpus_report_json(report, run.out, CorpusOptions::Mode::write)
                          : corpus_report_text(report, run.out, CorpusOptions::Mode::write));
    return ExitCode::done;
}

}  // namespace plimsoll
