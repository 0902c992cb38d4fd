#include "telemetry/run_rows.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <map>

#include "base/error.hpp"
#include "telemetry/metrics_reader.hpp"

namespace plimsoll
{

namespace
{

using Json = nlohmann::ordered_json;

constexpr std::size_t max_phases = 16;

/// One row with typed access; messages name file, line and field.
class Row
{
  public:
    Row(const Json& json, const MetricsReader& reader) : json_(json), reader_(reader) {}

    bool has(const char* key) const
    {
        const auto found = json_.find(key);
        return found != json_.end() && !found->is_null();
    }
    std::int64_t whole(const char* key) const
    {
        VALIDATE(has(key), FormatError, "{}: '{}' is missing", reader_.where(), key);
        const Json& value = json_.at(key);
        VALIDATE(value.is_number_integer() && value.get<std::int64_t>() >= 0, FormatError,
                 "{}: '{}' is not a whole number", reader_.where(), key);
        return value.get<std::int64_t>();
    }
    std::int64_t whole(const char* key, std::int64_t otherwise) const { return has(key) ? whole(key) : otherwise; }
    double number(const Json& value, const std::string& key) const
    {
        if (value.is_number()) { return value.get<double>(); }
        const bool named = value.is_string() && (value == "nan" || value == "inf" || value == "-inf");
        VALIDATE(named, FormatError, "{}: '{}' is not a number", reader_.where(), key);
        return value == "nan" ? std::nan("") : value == "inf" ? HUGE_VAL : -HUGE_VAL;
    }
    double number(const char* key) const { return number(json_.at(key), key); }
    std::string text(const char* key) const
    {
        return has(key) && json_.at(key).is_string() ? json_.at(key).get<std::string>() : "";
    }
    /// Members of an object; none when it is absent.
    std::vector<std::pair<std::string, double>> numbers(const char* key) const
    {
        std::vector<std::pair<std::string, double>> all;
        if (!has(key)) { return all; }
        VALIDATE(json_.at(key).is_object(), FormatError, "{}: '{}' is not an object", reader_.where(), key);
        for (const auto& item : json_.at(key).items())
        {
            all.emplace_back(item.key(), number(item.value(), item.key()));
        }
        return all;
    }
    bool is_false(const char* key) const { return has(key) && json_.at(key) == false; }

  private:
    const Json& json_;
    const MetricsReader& reader_;
};

struct Range
{
    std::int64_t first = 0, last = -1;

    bool empty() const { return last < first; }
    void include(std::int64_t step)
    {
        first = empty() ? step : std::min(first, step);
        last = std::max(last, step);
    }
    void include(const Range& other)
    {
        if (other.empty()) { return; }
        include(other.first);
        include(other.last);
    }
};

/// First pass: where attempts begin, so that the second knows which rows a later attempt did again.
struct Outline
{
    std::vector<RunAttempt> attempts;
    std::vector<std::int64_t> limits;  ///< rows of the attempt from this step on were done again
    Range steps;                       ///< of the rows that count
    Range validations;
    std::string set;  ///< whose validations count: [eval], or the first named set where a run has no other

    void take_validation(const std::string& name, std::int64_t step)
    {
        if (validations.empty()) { set = name; }
        if (name.empty() && !set.empty())
        {
            set.clear();
            validations = Range();
        }
        if (name == set) { validations.include(step); }
    }
};

/// A row of a step goes to the last attempt, or begins the next one.
bool begins_attempt(const std::vector<RunAttempt>& attempts, int number, std::int64_t step)
{
    return attempts.empty() || attempts.back().number != number || step <= attempts.back().last_step;
}

Outline outline_of(MetricsReader& reader)
{
    Outline outline;
    Json json;
    while (reader.next(json))
    {
        const Row row(json, reader);
        const std::int64_t step = row.whole("step");
        if (row.has("val_loss")) { outline.take_validation(row.text("set"), step); }
        if (!row.has("loss")) { continue; }
        const int number = static_cast<int>(row.whole("attempt", 1));
        if (begins_attempt(outline.attempts, number, step))
        {
            outline.attempts.emplace_back();
            outline.attempts.back().number = number;
            outline.attempts.back().first_step = step;
            outline.attempts.back().begin = row.text("time");
        }
        outline.attempts.back().last_step = step;
        outline.attempts.back().end = row.text("time");
    }
    outline.limits.resize(outline.attempts.size(), std::numeric_limits<std::int64_t>::max());
    for (std::size_t k = outline.attempts.size(); k-- > 1;)
    {
        outline.limits[k - 1] = std::min(outline.limits[k], outline.attempts[k].first_step);
    }
    for (std::size_t k = 0; k < outline.attempts.size(); ++k)
    {
        Range kept;
        kept.first = outline.attempts[k].first_step;
        kept.last = std::min(outline.attempts[k].last_step, outline.limits[k] - 1);
        outline.steps.include(kept);
    }
    return outline;
}

/// Second pass.
class Filler
{
  public:
    Filler(RunSummary& run, const RunReadOptions& options, Outline outline)
        : run_(run),
          options_(options),
          outline_(std::move(outline)),
          bars_(outline_.steps.first, outline_.steps.last, options.phase_bars)
    {
        const Range& steps = outline_.steps;
        run_.first_step = steps.first;
        run_.last_step = steps.last;
        for (Curve* curve : {&run_.loss, &run_.grad_norm, &run_.lr, &run_.tokens_per_second, &run_.peak_mib})
        {
            *curve = Curve(steps.first, steps.last, options.curve_points);
        }
        const Range& validations = outline_.validations;
        if (!validations.empty())
        {
            run_.validation = Curve(validations.first, validations.last, options.curve_points);
        }
    }

    void take(const Row& row)
    {
        const std::int64_t step = row.whole("step");
        const bool is_step = row.has("loss");
        if (is_step) { enter_attempt(static_cast<int>(row.whole("attempt", 1)), step); }
        if (!row.text("time").empty()) { run_.last_time = row.text("time"); }
        if (step >= limit())
        {
            if (is_step)
            {
                ++run_.repeated_steps;
                ++outline_.attempts[current_].repeated;
            }
            return;
        }
        if (is_step) { take_step(row, step); }
        if (row.has("val_loss") && row.text("set") == outline_.set) { take_validation(row, step); }
        if (row.has("saved_bytes")) { take_save(row, step); }
        if (row.has("save_failed"))
        {
            ++run_.num_failed_saves;
            run_.last_failed_save = fmt::format("step {}: {}", step, row.text("save_failed"));
        }
    }

    void finish(const MetricsReader& reader)
    {
        run_.median_tokens_per_second = median_.value();
        run_.torn_lines = reader.num_torn();
        run_.attempts = std::move(outline_.attempts);
        for (const auto& category : categories_)
        {
            run_.peak_by_category.push_back({category.first, static_cast<std::int64_t>(category.second)});
        }
        add_other_phase();
    }

  private:
    void enter_attempt(int number, std::int64_t step)
    {
        if (!begun_)
        {
            begun_ = true;
            previous_step_ = step;
            return;
        }
        // Mirrors begins_attempt(): the outline's attempts come in file order.
        if (current_ + 1 < outline_.attempts.size() &&
            (outline_.attempts[current_].number != number || step <= previous_step_))
        {
            ++current_;
        }
        previous_step_ = step;
    }
    std::int64_t limit() const { return outline_.limits[current_]; }

    static void add(Curve& curve, const Row& row, const char* key, std::int64_t step)
    {
        if (row.has(key)) { curve.add(step, row.number(key)); }
    }

    void take_step(const Row& row, std::int64_t step)
    {
        add(run_.loss, row, "loss", step);
        add(run_.grad_norm, row, "grad_norm", step);
        add(run_.lr, row, "lr", step);
        add(run_.tokens_per_second, row, "tokens_per_second", step);
        if (row.has("tokens_per_second")) { median_.add(row.number("tokens_per_second")); }
        run_.tokens = row.whole("consumed_tokens", run_.tokens);
        if (row.is_false("updated")) { ++run_.skipped_updates; }
        if (row.has("peak_bytes")) { run_.peak_mib.add(step, static_cast<double>(row.whole("peak_bytes")) / 1048576.0); }
        take_peaks(row);
        take_phases(row, step);
    }

    /// A start in another layout has another plan: only what was measured under this one is compared with it.
    void take_peaks(const Row& row)
    {
        if (run_.plan_attempt > 0 && row.whole("attempt", 1) != run_.plan_attempt) { return; }
        if (row.has("peak_bytes")) { run_.peak_bytes = std::max(run_.peak_bytes, row.whole("peak_bytes")); }
        for (const auto& category : row.numbers("peak_by_category"))
        {
            double& largest = category_of(category.first);
            largest = std::max(largest, category.second);
        }
    }

    double& category_of(const std::string& name)
    {
        for (auto& category : categories_)
        {
            if (category.first == name) { return category.second; }
        }
        categories_.emplace_back(name, 0.0);
        return categories_.back().second;
    }

    void take_phases(const Row& row, std::int64_t step)
    {
        const double seconds = row.has("seconds") ? row.number("seconds") : 0;
        if (!std::isfinite(seconds)) { return; }
        run_.step_seconds += seconds;
        const auto phases = row.numbers("phase_seconds");
        if (phases.empty()) { return; }
        bars_.add(step, seconds);
        std::vector<PhaseBucket>& buckets = run_.phase_buckets;
        buckets.resize(std::max(buckets.size(), bars_.index_of(step) + 1));
        PhaseBucket& bucket = buckets[bars_.index_of(step)];
        if (bucket.count++ == 0) { bucket.first_step = step; }
        bucket.last_step = step;
        bucket.seconds += seconds;
        for (const auto& phase : phases)
        {
            auto found = std::find(run_.phases.begin(), run_.phases.end(), phase.first);
            if (found == run_.phases.end())
            {
                if (run_.phases.size() >= max_phases || !std::isfinite(phase.second)) { continue; }
                found = run_.phases.insert(run_.phases.end(), phase.first);
            }
            bucket.phase_seconds.resize(run_.phases.size());
            bucket.phase_seconds[static_cast<std::size_t>(found - run_.phases.begin())] += phase.second;
        }
    }

    void add_other_phase()
    {
        auto& buckets = run_.phase_buckets;
        buckets.erase(std::remove_if(buckets.begin(), buckets.end(), [](const PhaseBucket& b) { return b.count == 0; }),
                      buckets.end());
        double others = 0;
        for (PhaseBucket& bucket : buckets)
        {
            bucket.phase_seconds.resize(run_.phases.size());
            double named = 0;
            for (const double seconds : bucket.phase_seconds) { named += seconds; }
            bucket.phase_seconds.push_back(std::max(0.0, bucket.seconds - named));
            others += bucket.phase_seconds.back();
        }
        if (buckets.empty()) { return; }
        // Below one part in a thousand it is the clock's own time.
        if (others > 1e-3 * run_.step_seconds) { run_.phases.emplace_back("other"); }
        else
        {
            for (PhaseBucket& bucket : buckets) { bucket.phase_seconds.pop_back(); }
        }
    }

    void take_validation(const Row& row, std::int64_t step)
    {
        const double loss = row.number("val_loss");
        run_.validation.add(step, loss);
        if (row.has("bits_per_byte")) { run_.bits_per_byte = row.number("bits_per_byte"); }
        if (std::isfinite(loss) && !(loss >= run_.best_validation))
        {
            run_.best_validation = loss;
            run_.best_validation_step = step;
        }
    }

    void take_save(const Row& row, std::int64_t step)
    {
        RunCheckpoint save;
        save.step = step;
        save.attempt = static_cast<int>(row.whole("attempt", 1));
        save.bytes = row.whole("saved_bytes");
        save.seconds = row.has("seconds") ? row.number("seconds") : 0;
        save.time = row.text("time");
        ++run_.num_checkpoints;
        run_.checkpoint_seconds += save.seconds;
        auto& list = run_.checkpoints;
        list.erase(std::remove_if(list.begin(), list.end(), [step](const RunCheckpoint& c) { return c.step == step; }),
                   list.end());
        list.push_back(std::move(save));
        if (list.size() > options_.max_checkpoints) { list.erase(list.begin()); }
    }

    RunSummary& run_;
    const RunReadOptions& options_;
    Outline outline_;
    Curve bars_;
    BoundedMedian median_;
    std::vector<std::pair<std::string, double>> categories_;
    std::size_t current_ = 0;
    bool begun_ = false;
    std::int64_t previous_step_ = 0;
};

}  // namespace

std::optional<double> seconds_of_utc(const std::string& text)
{
    std::tm parts = {};
    const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
    if (end == nullptr) { return std::nullopt; }
    char* rest = nullptr;
    const double fraction = *end == '.' ? std::strtod(end, &rest) : 0;
    if (rest != nullptr) { end = rest; }
    if (std::string(end) != "Z") { return std::nullopt; }
    return static_cast<double>(::timegm(&parts)) + fraction;
}

void read_rows(RunSummary& run, const RunReadOptions& options)
{
    const std::string path = run.path + "/metrics.jsonl";
    std::error_code error;
    VALIDATE(std::filesystem::exists(path, error), UsageError,
             "no metrics yet in '{}' (no metrics.jsonl). try again when the run has finished a step", run.path);
    MetricsReader reader(path);
    Outline outline = outline_of(reader);
    VALIDATE(!outline.attempts.empty(), UsageError,
             "no metrics yet in '{}' (metrics.jsonl has no step). try again when the run has finished a step",
             run.path);
    Filler filler(run, options, std::move(outline));
    reader.rewind();
    Json json;
    while (reader.next(json)) { filler.take(Row(json, reader)); }
    filler.finish(reader);
}

}  // namespace plimsoll
