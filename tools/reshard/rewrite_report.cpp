#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/units.hpp"
#include "report.hpp"

namespace plimsoll
{
namespace
{

using Json = nlohmann::ordered_json;

std::string row(const char* label, const std::string& text) { return fmt::format("{:<11}{}\n", label, text); }

std::string memory(std::int64_t bytes) { return format_memory(static_cast<double>(bytes)); }

std::string files_text(std::int64_t number) { return fmt::format("{} file{}", format_grouped(number), number == 1 ? "" : "s"); }

std::string target_files(const ReshardSummary& s)
{
    if (s.target_files == 1) { return fmt::format("1 file, {}", storage(s.largest_file)); }
    const std::string smallest = storage(s.smallest_file), largest = storage(s.largest_file);
    return fmt::format("{}, {} each (balance {:.2f})", files_text(s.target_files),
                       smallest == largest ? largest : smallest + " to " + largest, s.balance);
}

}  // namespace

std::string plan_report(const ReshardSummary& s)
{
    constexpr double shown_rate = 1e9;
    return row("source", fmt::format("{}   {}   {} tensors x {} states   {} in {}",
                                     std::filesystem::path(s.source).lexically_normal().filename().string(), s.source_layout,
                                     format_grouped(s.tensors), s.states, storage(s.data_bytes), files_text(s.source_files))) +
           row("target", fmt::format("{}   {}", s.target_layout, target_files(s))) +
           row("copies", fmt::format("{} in {} blocks of at most {}   read {} (amplification {:.2f})   write {}",
                                     format_grouped(s.copies), format_grouped(s.blocks), memory(s.block_bytes),
                                     storage(s.read_bytes), s.amplification(), storage(s.data_bytes))) +
           row("memory", fmt::format("{} per rank of {} allowed      time at {}: {}", memory(s.memory), memory(s.memory_limit),
                                     format_rate(shown_rate),
                                     format_clock(static_cast<double>(s.read_bytes + s.data_bytes) / shown_rate)));
}

std::string result_report(const ReshardSummary& s, const ReshardResult& result, double seconds)
{
    const double moved = static_cast<double>(result.read_bytes + s.data_bytes);
    return row("moved", fmt::format("read {}, wrote {} in {} ({} together)", storage(result.read_bytes), storage(s.data_bytes),
                                    format_clock(seconds), format_rate(moved / std::max(seconds, 1e-3)))) +
           row("verify", fmt::format("coverage ok: every element once   digest ok: {} of {} equal   committed {}",
                                     format_grouped(result.digests), format_grouped(s.tensor_states), result.saved.path));
}

std::string rewrite_json(const ReshardSummary& s, const ReshardResult* result, double seconds)
{
    Json json = {{"schema_version", 1},
                 {"step", s.step},
                 {"source", {{"path", s.source}, {"layout", s.source_layout}, {"files", s.source_files}}},
                 {"target",
                  {{"layout", s.target_layout},
                   {"files", s.target_files},
                   {"smallest_file_bytes", s.smallest_file},
                   {"largest_file_bytes", s.largest_file},
                   {"balance", s.balance}}},
                 {"tensors", s.tensors},
                 {"states", s.states},
                 {"copies", s.copies},
                 {"blocks", s.blocks},
                 {"block_bytes", s.block_bytes},
                 {"read_bytes", s.read_bytes},
                 {"write_bytes", s.data_bytes},
                 {"amplification", s.amplification()},
                 {"memory_bytes", s.memory},
                 {"memory_limit_bytes", s.memory_limit},
                 {"disk_bytes", s.disk_bytes},
                 {"dry_run", result == nullptr}};
    if (result != nullptr)
    {
        json["seconds"] = seconds;
        json["digests_equal"] = result->digests;
        json["committed"] = result->saved.path;
        json["committed_bytes"] = result->saved.bytes;
    }
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll
