#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/run_tool.hpp"
#include "base/units.hpp"

namespace plimsoll
{

namespace
{

using Json = nlohmann::ordered_json;

/// Ranks of each host in order of appearance.
std::vector<std::pair<std::string, std::vector<std::int64_t>>> ranks_by_host(const BenchSetting& setting)
{
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> hosts;
    for (std::size_t rank = 0; rank < setting.places.size(); ++rank)
    {
        const std::string& host = setting.places[rank].host;
        auto found =
            std::find_if(hosts.begin(), hosts.end(), [&host](const auto& entry) { return entry.first == host; });
        if (found == hosts.end()) { found = hosts.insert(hosts.end(), {host, {}}); }
        found->second.push_back(static_cast<std::int64_t>(rank));
    }
    return hosts;
}

std::string plural(std::int64_t number, const std::string& noun)
{
    return fmt::format("{} {}{}", format_grouped(number), noun, number == 1 ? "" : "s");
}

/// "nodeA core 0, nodeA core 1" of few ranks; "nodeA 32, nodeB 32" of many.
std::string places_text(const BenchSetting& setting)
{
    constexpr std::size_t few_ranks = 4, few_hosts = 8;
    std::string text;
    const bool bound = std::all_of(setting.places.begin(), setting.places.end(),
                                   [](const RankPlace& place) { return place.core >= 0; });
    if (setting.places.size() <= few_ranks && bound)
    {
        for (std::size_t rank = 0; rank < setting.places.size(); ++rank)
        {
            const RankPlace& place = setting.places[rank];
            text += fmt::format("{}rank {} {} core {}", rank == 0 ? "" : ", ", rank, place.host, place.core);
        }
        return text;
    }
    const auto hosts = ranks_by_host(setting);
    for (std::size_t k = 0; k < std::min(hosts.size(), few_hosts); ++k)
    {
        text += (k == 0 ? "" : ", ") + hosts[k].first;
        if (hosts.size() > 1) { text += fmt::format(" {}", hosts[k].second.size()); }
    }
    if (hosts.size() > few_hosts) { text += fmt::format(" and {} more nodes", hosts.size() - few_hosts); }
    return text;
}

std::string microseconds(double seconds) { return std::isnan(seconds) ? "-" : fmt::format("{:.2f}", 1e6 * seconds); }

std::string gigabytes(double bytes_per_second)
{
    const double rate = bytes_per_second / 1e9;
    return fmt::format("{:.{}f}", rate, rate < 0.1 ? 4 : rate < 10 ? 3 : rate < 100 ? 2 : 1);
}

std::vector<std::int64_t> slowest_counts(const std::vector<AllReduceResult>& results)
{
    std::vector<std::int64_t> counts(results.front().slowest_counts.size());
    for (const AllReduceResult& result : results)
    {
        for (std::size_t rank = 0; rank < counts.size(); ++rank) { counts[rank] += result.slowest_counts[rank]; }
    }
    return counts;
}

Json slowest_json(const std::vector<std::int64_t>& counts)
{
    const SlowestRank slowest = slowest_rank(counts);
    return {{"rank", slowest.rank}, {"share", slowest.share}, {"even", slowest.even}};
}

Json figures_json(const TimeFigures& times)
{
    return {{"min", times.minimum},
            {"mean", times.mean},
            {"p50", times.p50},
            {"p99", std::isnan(times.p99) ? Json(nullptr) : Json(times.p99)},
            {"max", times.maximum}};
}

Json result_json(const AllReduceResult& result)
{
    const TimeFigures times = result.times();
    Json json;
    json["bytes"] = result.bench.bytes();
    json["count"] = result.bench.count;
    json["iterations"] = result.seconds.size();
    json["seconds"] = figures_json(times);
    if (!result.peer_seconds.empty())
    {
        const TimeFigures peer = result.peer_times();
        json["peer_seconds"] = figures_json(peer);
        json["peer_factor"] = {{"min", peer.minimum / times.minimum}, {"p50", peer.p50 / times.p50}};
    }
    json["algorithm_bandwidth"] = result.algorithm_bandwidth();
    json["bus_bandwidth"] = result.ranks > 1 ? Json(result.bus_bandwidth()) : Json(nullptr);
    json["verified_iterations"] = result.verified_iterations;
    json["wrong"] = result.verified_iterations > 0 ? Json(result.wrong) : Json(nullptr);
    json["slowest"] = slowest_json(result.slowest_counts);
    return json;
}

constexpr const char* columns = "{:>12}  {:>12}  {:>7}  {:>11}  {:>11}  {:>11}  {:>10}  {:>10}  {:>7}\n";
constexpr const char* peer_columns =
    "{:>12}  {:>7}  {:>11}  {:>11}  {:>10}  {:>11}  {:>11}  {:>10}  {:>6}  {:>6}  {:>7}\n";

std::string times_text(double factor) { return fmt::format("{:.2f}", factor); }

/// Ours beside the peer's.
std::string peer_row(const AllReduceResult& result)
{
    const TimeFigures ours = result.times();
    const TimeFigures theirs = result.peer_times();
    return fmt::format(peer_columns, result.bench.bytes(), result.seconds.size(), microseconds(ours.p50),
                       microseconds(ours.minimum), gigabytes(result.algorithm_bandwidth()), microseconds(theirs.p50),
                       microseconds(theirs.minimum), gigabytes(static_cast<double>(result.bench.bytes()) / theirs.p50),
                       times_text(theirs.p50 / ours.p50), times_text(theirs.minimum / ours.minimum),
                       result.verified_iterations > 0 ? fmt::format("{}", result.wrong) : "-");
}

}  // namespace

std::string table_head(const BenchSetting& setting)
{
    const auto hosts = static_cast<std::int64_t>(ranks_by_host(setting).size());
    const auto ranks = static_cast<std::int64_t>(setting.places.size());
    std::string text =
        fmt::format("# {} on {}: {}\n", plural(ranks, "rank"), plural(hosts, "node"), places_text(setting));
    text +=
        fmt::format("# {}{}   {} sum, in place, isolated (a barrier before each iteration, outside its time)\n",
                    setting.back_end == "threads" ? "threads of one process" : setting.back_end,
                    setting.launcher.empty() ? "" : fmt::format(" (launched by {})", setting.launcher), setting.dtype);
    text += fmt::format("# time of an iteration: its slowest rank's; {} warm-up, at least {} and {} s   {}\n",
                        setting.warmup, plural(setting.iterations, "iteration"), number_text(setting.min_seconds),
                        setting.check ? "every element of every iteration verified" : "not verified");
    // In the stream of the table: a launcher passes on the two streams in any order.
    const std::string shared = oversubscription(setting);
    if (!shared.empty()) { text += fmt::format("# warning: {}\n", shared); }
    if (!setting.peer.empty())
    {
        text += fmt::format("# mpi: MPI_Allreduce of {} on the same buffers, in turns; x: how many times as long it takes\n",
                            setting.peer);
        return text + fmt::format(peer_columns, "size", "iter", "p50 us", "min us", "algbw GB/s", "mpi p50 us", "mpi min us",
                                  "mpi GB/s", "x p50", "x min", "#wrong");
    }
    return text + fmt::format(columns, "size", "count", "iter", "p50 us", "p99 us", "max us", "algbw GB/s",
                              "busbw GB/s", "#wrong");
}

std::string table_row(const BenchSetting& setting, const AllReduceResult& result)
{
    if (!setting.peer.empty()) { return peer_row(result); }
    const TimeFigures times = result.times();
    return fmt::format(columns, result.bench.bytes(), result.bench.count, result.seconds.size(),
                       microseconds(times.p50), microseconds(times.p99), microseconds(times.maximum),
                       gigabytes(result.algorithm_bandwidth()),
                       result.ranks > 1 ? gigabytes(result.bus_bandwidth()) : "-",
                       result.verified_iterations > 0 ? fmt::format("{}", result.wrong) : "-");
}

std::string table_end(const BenchSetting& setting, const std::vector<AllReduceResult>& results)
{
    std::string text;
    if (setting.places.size() > 1)
    {
        const SlowestRank slowest = slowest_rank(slowest_counts(results));
        text = fmt::format("slowest rank: {} on {} in {:.0f} % of iterations ({})     ", slowest.rank,
                           setting.places[static_cast<std::size_t>(slowest.rank)].host, 100 * slowest.share,
                           slowest.even ? "even" : "uneven: look at this rank");
    }
    return text + "verdict: " + all_reduce_verdict(results) + "\n";
}

std::string bench_json(const BenchSetting& setting, const std::vector<AllReduceResult>& results)
{
    Json json;
    json["schema_version"] = 1;
    json["version"] = version_with_build();
    json["operation"] = "all_reduce";
    json["reduction"] = "sum";
    json["dtype"] = setting.dtype;
    json["in_place"] = true;
    json["cadence"] = "isolated";
    json["back_end"] = setting.back_end;
    json["launcher"] = setting.launcher;
    json["peer"] = setting.peer.empty() ? Json(nullptr) : Json(setting.peer);
    json["warmup"] = setting.warmup;
    json["bus_factor"] = all_reduce_bus_factor(static_cast<std::int64_t>(setting.places.size()));
    json["ranks"] = Json::array();
    for (const RankPlace& place : setting.places)
    {
        json["ranks"].push_back({{"host", place.host},
                                 {"core", place.core >= 0 ? Json(place.core) : Json(nullptr)},
                                 {"cores", place.cores}});
    }
    json["results"] = Json::array();
    for (const AllReduceResult& result : results) { json["results"].push_back(result_json(result)); }
    json["slowest"] = slowest_json(slowest_counts(results));
    json["verdict"] = all_reduce_verdict(results);
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string oversubscription(const BenchSetting& setting)
{
    for (const auto& host : ranks_by_host(setting))
    {
        std::int64_t cores = 0;
        for (const std::int64_t rank : host.second)
        {
            const RankPlace& place = setting.places[static_cast<std::size_t>(rank)];
            // Ranks of which each is bound to its own cores add up; unbound ones share the same cores.
            cores = setting.back_end == "threads" || place.core < 0 ? std::max<std::int64_t>(cores, place.cores)
                                                                    : cores + place.cores;
        }
        const auto ranks = static_cast<std::int64_t>(host.second.size());
        if (ranks > cores)
        {
            return fmt::format("{} share {} on {}: times say more about the scheduler than about the links",
                               plural(ranks, "rank"), plural(cores, "core"), host.first);
        }
    }
    return "";
}

}  // namespace plimsoll
