#pragma once
/// The report's forms.

#include <string>

#include "facts.hpp"
#include "svg.hpp"
#include "telemetry/run_reader.hpp"

namespace plimsoll
{

struct ReportStyle
{
    std::string loss_scale = "auto";  ///< auto | linear | log
};

/// Scale of the loss chart: log when asked for and possible, or when "auto" finds a wide range.
AxisScale loss_scale_of(const RunSummary& run, const ReportStyle& style);

/// One page without scripts or anything to load. `made` is the time it was made, as shown at its end.
std::string html_page(const RunSummary& run, const RunFacts& facts, const ReportStyle& style, const std::string& made);

enum class Glyphs
{
    unicode,  ///< braille dots and blocks
    ascii
};
/// For a terminal of `width` columns (at least 40).
std::string text_page(const RunSummary& run, const RunFacts& facts, const ReportStyle& style, Glyphs glyphs, int width);

/// Figures for machines, "schema_version" 1.
std::string json_page(const RunSummary& run, const RunFacts& facts);

}  // namespace plimsoll
