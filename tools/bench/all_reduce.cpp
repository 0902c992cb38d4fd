#include "all_reduce.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdio>

#include "base/cores.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "comm/exchange.hpp"
#include "comm/launch.hpp"
#include "comm/thread_communicator.hpp"
#include "comm_mpi/run_with_mpi.hpp"
#include "report.hpp"
#include "telemetry/host.hpp"
#include "telemetry/host_memory.hpp"

namespace plimsoll
{

namespace
{

void print(const std::string& text)
{
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

RankPlace own_place()
{
    RankPlace place;
    place.host = host_name();
    place.cores = allowed_cores();
    if (place.cores == 1) { place.core = ::sched_getcpu(); }
    return place;
}

std::vector<RankPlace> places_of(Communicator& world)
{
    const RankPlace mine = own_place();
    MessageWriter writer;
    writer.add_text(mine.host);
    writer.add(mine.core);
    writer.add(mine.cores);
    std::vector<RankPlace> places;
    for (const std::string& bytes : all_gather_bytes(world, writer.bytes()))
    {
        MessageReader reader(bytes);
        RankPlace place;
        place.host = reader.get_text();
        place.core = reader.get<int>();
        place.cores = reader.get<int>();
        places.push_back(place);
    }
    return places;
}

AllReduceBench bench_of(const AllReduceOptions& options, std::int64_t bytes)
{
    AllReduceBench bench;
    bench.dtype = options.dtype == "fp64" ? Dtype::f64 : Dtype::f32;
    bench.count = bytes / dtype_bytes(bench.dtype);
    bench.warmup = options.warmup;
    bench.iterations = options.iterations;
    bench.min_seconds = options.min_seconds;
    bench.max_iterations = std::max(bench.max_iterations, options.iterations);
    if (options.peer == "mpi") { bench.peer = mpi_library_sum; }
    bench.verification = options.check ? Verification::every_iteration : Verification::none;
    return bench;
}

/// Two buffers a rank: its own, and what the reduction needs beside it at most.
void check_memory(const AllReduceOptions& options, std::int64_t local_ranks)
{
    const std::int64_t memory = machine_memory_bytes();
    const double size = static_cast<double>(options.sizes.last);
    const double needed = 2 * size * static_cast<double>(local_ranks);
    VALIDATE(memory <= 0 || needed <= 0.9 * static_cast<double>(memory), UsageError,
             "size {} needs {} for {} ranks on {} (it has {}). end --sizes earlier", format_memory(size),
             format_memory(needed), local_ranks, host_name(), format_memory(static_cast<double>(memory)));
}

void validate(const AllReduceOptions& options)
{
    const std::int64_t element = options.dtype == "fp64" ? 8 : 4;
    VALIDATE(options.sizes.first >= element, UsageError, "--sizes begins below one element ({} < {} bytes of {})",
             options.sizes.first, element, options.dtype);
    const std::int64_t first = options.sizes.first;
    // A range is cut to whole elements, and its rows say so; one size is meant as it stands.
    VALIDATE(first % element == 0 || first < options.sizes.last, UsageError, "size {} is no whole number of elements ({} bytes of {}). nearest: {} or {}", first,
             element, options.dtype, first / element * element, (first / element + 1) * element);
    const Launch launch = read_launch();
    VALIDATE(options.ranks == 0 || launch.world == 1, UsageError,
             "--ranks {} asks for threads, but {} started {} processes. leave out one of them", options.ranks,
             launch.launcher, launch.world);
    VALIDATE(options.peer == "none" || options.ranks == 0, UsageError,
             "--peer mpi compares with MPI, but --ranks {} asks for threads. start it with mpiexec -n {} instead",
             options.ranks, options.ranks);
    VALIDATE(options.ranks > 0 || launch.world > 1, UsageError,
             "one rank has nothing to reduce (no launcher started several). start it with mpiexec -n 2, or say --ranks "
             "2 for threads");
}

ExitCode start(const AllReduceOptions& options)
{
    if (options.ranks == 0)
    {
        return run_with_mpi(
            [&options](Communicator& world)
            {
                agree(world, [&options] { check_memory(options, read_launch().local_ranks); });
                return run_all_reduce(options, world, "mpi");
            });
    }
    check_memory(options, options.ranks);
    ExitCode code = ExitCode::done;
    run_ranks(options.ranks,
              [&](Communicator& world)
              {
                  const ExitCode own = run_all_reduce(options, world, "threads");
                  if (world.rank() == 0) { code = own; }
              });
    return code;
}

}  // namespace

ExitCode run_all_reduce(const AllReduceOptions& options, Communicator& world, const std::string& back_end)
{
    BenchSetting setting;
    setting.back_end = back_end;
    setting.launcher = back_end == "mpi" ? read_launch().launcher : "";
    setting.places = places_of(world);
    setting.dtype = options.dtype;
    setting.warmup = options.warmup;
    setting.iterations = options.iterations;
    setting.min_seconds = options.min_seconds;
    setting.check = options.check;
    setting.peer = options.peer == "mpi" ? mpi_library() : "";
    const bool talks = world.rank() == 0;
    if (talks && !options.json) { print(table_head(setting)); }
    if (const std::string shared = oversubscription(setting); talks && options.json && !shared.empty())
    {
        Log(stderr).warning(shared);
    }
    std::vector<AllReduceResult> results;
    for (const std::int64_t bytes : options.sizes.sizes())
    {
        results.push_back(with_context(fmt::format("all-reduce of {} bytes", bytes),
                                       [&] { return bench_all_reduce(world, bench_of(options, bytes)); }));
        if (talks && !options.json) { print(table_row(setting, results.back())); }
    }
    if (talks) { print(options.json ? bench_json(setting, results) : table_end(setting, results)); }
    const bool wrong =
        std::any_of(results.begin(), results.end(), [](const AllReduceResult& result) { return result.wrong > 0; });
    return wrong ? ExitCode::failed : ExitCode::done;
}

Command all_reduce_command(AllReduceOptions& o)
{
    Command command;
    command.name = "allreduce";
    command.summary = "time, bandwidth and exactness of sums over all ranks";
    command.run_files = RunFiles::refused;
    command.examples = {"mpiexec -n 2 plimsoll-bench allreduce --sizes 1K:64M",
                        "mpiexec -n 2 plimsoll-bench allreduce --peer mpi     beside the MPI library's own",
                        "plimsoll-bench allreduce --ranks 2                   threads of one process",
                        "plimsoll-bench allreduce --ranks 2 --sizes 4M --dtype fp64 --min-time 2s --json"};
    command.declare = [&o](OptionSet& options)
    {
        options
            .add_custom(
                "", "sizes", OptionSet::Arity::one, size_range_text(o.sizes),
                [&o](const OptionValue& value)
                {
                    o.sizes = parse_size_range(value.text);
                    return size_range_text(o.sizes);
                },
                "bytes of a rank's buffer, FIRST:LAST doubling, FIRST:LAST:FACTOR, or one size; K M G are powers of "
                "two")
            .value_name("SIZES")
            .shown_default("1K:64M");
        options.add_count("", "ranks", o.ranks, "ranks as threads of this process")
            .range(1, 1024)
            .shown_default("those of the launcher")
            .no_default();
        options.add_count("", "iters", o.iterations, "iterations of a size, at least; p99 needs 100").range(1, 1e7);
        options.add_duration("", "min-time", o.min_seconds, "iterate at least so long, up to 100,000 times")
            .range(0, 3600);
        options.add_count("", "warmup-iters", o.warmup, "iterations before, not counted").range(1, 1e6);
        options.add_choice("", "dtype", o.dtype, {"fp32", "fp64"}, "type of the elements");
        options.add_choice("", "peer", o.peer, {"none", "mpi"},
                           "measure MPI_Allreduce of the MPI library too, in turns with ours");
        options.add_flag("", "check", o.check,
                         "verify every element of every iteration (outside its time); one that is wrong: exit 1. "
                         "--no-check: do not");
        options.add_flag("", "json", o.json, "as JSON, when all is done");
        for (const char* name : {"b", "e", "f", "minbytes", "maxbytes", "stepfactor"})
        {
            options.add_peer_hint(name, "--sizes FIRST:LAST:FACTOR");
        }
        options.add_peer_hint("n", "--iters");
        options.add_peer_hint("w", "--warmup-iters");
        options.add_peer_hint("d", "--dtype");
        options.add_peer_hint("datatype", "--dtype");
    };
    command.validate = [&o] { validate(o); };
    command.run = [&o](const Invocation&) { return start(o); };
    return command;
}

}  // namespace plimsoll
