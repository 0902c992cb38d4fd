#pragma once
/// What a run's figures say in words: the same for page, terminal and JSON.

#include <string>
#include <vector>

#include "telemetry/run_reader.hpp"

namespace plimsoll
{

enum class Tone
{
    good,
    busy,
    warning,
    bad
};

struct Fact
{
    std::string label;
    std::string value;
    std::string note;  ///< smaller, may be empty
};

struct RunFacts
{
    Tone tone = Tone::good;
    std::string state;    ///< "finished", "running", "stopped", "failed", "killed", "unknown"
    std::string verdict;  ///< "finished: 61 of 61 steps, loss 5.5621 to 2.6043"
    std::vector<Fact> facts;
    std::vector<std::string> notes;  ///< what a reader should know: repeated steps, skipped updates, ...
};

/// `now`: seconds since 1970, for the age of a running job's last row.
RunFacts facts_of(const RunSummary& run, double now);

/// "0.02 s", "12.3 s", "1:04", "2:10:00".
std::string spoken_seconds(double seconds);
/// Four digits behind the point while it is small: "2.6043", "1.23e+05", "nan".
std::string loss_text(double loss);
/// Four digits, since a plan is met within parts of a thousand: "111.6 MiB", "36.73 GiB", "12 B".
std::string memory_text(std::int64_t bytes);
/// "+3.2 %", "-0.4 %": `value` against `base`.
std::string deviation_text(double value, double base);

}  // namespace plimsoll
