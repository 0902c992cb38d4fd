#include "comm_mpi/run_with_mpi.hpp"

#include "comm/launch.hpp"

#ifdef PLIMSOLL_WITH_MPI

#include <errno.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "comm_mpi/mpi_communicator.hpp"

namespace plimsoll
{
namespace mpi
{
namespace
{

constexpr auto wait_for_others = std::chrono::seconds(2);

/// How a rank ended, as it is told to the others.
struct Ending
{
    std::int64_t code = 0;
    std::int64_t has_failed = 0;
    std::array<char, 1008> text{};
};

/// Slots of the ranks of this node in memory that they share: a rank that waits can see what the others do.
class SharedSlots
{
  public:
    SharedSlots()
    {
        int world_size = 0, node_size = 0, node_rank = 0;
        MPI_Comm node = MPI_COMM_NULL;
        check(MPI_Comm_size(MPI_COMM_WORLD, &world_size), "MPI_Comm_size");
        check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
        check(MPI_Comm_size(node, &node_size), "MPI_Comm_size");
        check(MPI_Comm_rank(node, &node_rank), "MPI_Comm_rank");
        num_local_ = node_size;
        void* mine = nullptr;
        check(MPI_Win_allocate_shared(sizeof(RankSlot), sizeof(RankSlot), MPI_INFO_NULL, node, &mine, &window_),
              "MPI_Win_allocate_shared");
        new (mine) RankSlot();
        check(MPI_Barrier(node), "MPI_Barrier");

        MPI_Group of_world = MPI_GROUP_NULL, of_node = MPI_GROUP_NULL;
        check(MPI_Comm_group(MPI_COMM_WORLD, &of_world), "MPI_Comm_group");
        check(MPI_Comm_group(node, &of_node), "MPI_Comm_group");
        std::vector<int> local(static_cast<std::size_t>(node_size)), global(local.size());
        std::iota(local.begin(), local.end(), 0);
        check(MPI_Group_translate_ranks(of_node, node_size, local.data(), of_world, global.data()), "MPI_Group_translate_ranks");
        slots_.resize(static_cast<std::size_t>(world_size), nullptr);
        for (int r = 0; r < node_size; ++r)
        {
            MPI_Aint bytes = 0;
            int unit = 0;
            void* slot = nullptr;
            check(MPI_Win_shared_query(window_, r, &bytes, &unit, &slot), "MPI_Win_shared_query");
            slots_[static_cast<std::size_t>(global[static_cast<std::size_t>(r)])] = static_cast<RankSlot*>(slot);
        }
        MPI_Group_free(&of_world);
        MPI_Group_free(&of_node);
        MPI_Comm_free(&node);
    }

    const std::vector<RankSlot*>& slots() const { return slots_; }
    std::int64_t num_local() const { return num_local_; }
    /// Collective.
    void free() { MPI_Win_free(&window_); }

  private:
    std::int64_t num_local_ = 1;
    MPI_Win window_ = MPI_WIN_NULL;
    std::vector<RankSlot*> slots_;
};

std::string distinct_texts(const std::vector<Ending>& endings)
{
    constexpr std::size_t most_shown = 4;
    std::vector<std::pair<std::size_t, std::string>> shown;
    std::size_t num_failed = 0;
    for (std::size_t r = 0; r < endings.size(); ++r)
    {
        if (endings[r].has_failed == 0) { continue; }
        ++num_failed;
        const std::string text = endings[r].text.data();
        const bool is_known = std::any_of(shown.begin(), shown.end(), [&](const auto& other) { return other.second == text; });
        if (!is_known) { shown.emplace_back(r, text); }
    }
    if (shown.size() == 1 && num_failed == endings.size()) { return shown.front().second; }
    std::string all;
    for (std::size_t i = 0; i < std::min(shown.size(), most_shown); ++i)
    {
        all += fmt::format("{}rank {}: {}", i == 0 ? "" : "; ", shown[i].first, shown[i].second);
    }
    if (shown.size() > most_shown) { all += fmt::format("; and {} other messages", shown.size() - most_shown); }
    return all;
}

class Job
{
  public:
    explicit Job(const MpiOptions& options) : options_(options)
    {
        int provided = 0;
        check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
        check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    }

    std::int64_t size() const { return size_; }

    ExitCode run(const std::function<ExitCode(Communicator& world)>& body)
    {
        check_threads();
        check(MPI_Comm_dup(MPI_COMM_WORLD, &endings_comm_), "MPI_Comm_dup");
        SharedSlots slots;
        const auto board = std::make_shared<RankBoard>(slots.slots(), nullptr);
        auto engine = std::make_shared<Engine>(rank_, board, slots.num_local(), options_.watchdog_s, std::int64_t(1) << 30);
        check(MPI_Barrier(endings_comm_), "MPI_Barrier");
        Ending mine;
        run_body(body, engine, mine);
        wait_for_ends(mine, *engine);
        const ExitCode code = conclude(mine);
        engine.reset();
        slots.free();
        return code;
    }

    /// After run(), or instead of it.
    void finalize()
    {
        if (endings_comm_ != MPI_COMM_NULL) { MPI_Comm_free(&endings_comm_); }
        MPI_Finalize();
    }

    /// What rank 0 says for all; empty when nobody failed.
    const std::optional<Error>& failure() const { return failure_; }

  private:
    static void check_threads()
    {
        int provided = 0;
        MPI_Query_thread(&provided);
        VALIDATE(provided >= MPI_THREAD_FUNNELED, CommError, "this MPI allows no threads beside the one that calls it (level {})",
                 provided);
    }

    void run_body(const std::function<ExitCode(Communicator& world)>& body, const std::shared_ptr<Engine>& engine, Ending& mine)
    {
        const auto fail = [&](ExitCode code, const char* text)
        {
            mine.code = static_cast<std::int64_t>(code);
            mine.has_failed = 1;
            std::strncpy(mine.text.data(), text, mine.text.size() - 1);
            what_it_did_ = describe(engine->activity().record());
            engine->activity().set_state(RankState::failed);
        };
        try
        {
            std::vector<std::int64_t> everyone(static_cast<std::size_t>(size_));
            std::iota(everyone.begin(), everyone.end(), 0);
            MPI_Comm comm = MPI_COMM_NULL;
            check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
            const std::unique_ptr<Communicator> world = make_communicator(engine, comm, "world", everyone);
            mine.code = static_cast<std::int64_t>(body(*world));
            engine->enter();
            engine->activity().set_state(RankState::done);
        }
        catch (const Error& error)
        {
            fail(error.exit_code(), error.what());
        }
        catch (const std::exception& error)
        {
            fail(ExitCode::failed, error.what());
        }
    }

    /// A rank that failed gives the others two seconds to come to their end too.
    void wait_for_ends(const Ending& mine, Engine& engine)
    {
        MPI_Request request = MPI_REQUEST_NULL;
        check(MPI_Ibarrier(endings_comm_, &request), "MPI_Ibarrier");
        const auto until = std::chrono::steady_clock::now() + wait_for_others;
        for (int done = 0;;)
        {
            check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
            if (done != 0) { return; }
            engine.progress();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (mine.has_failed != 0 && std::chrono::steady_clock::now() > until) { abort(mine); }
        }
    }

    [[noreturn]] void abort(const Ending& mine)
    {
        std::fprintf(stderr, "%s: rank %d (%s): %s\n", program_invocation_short_name, rank_, what_it_did_.c_str(),
                     mine.text.data());
        std::fflush(stderr);
        MPI_Abort(MPI_COMM_WORLD, static_cast<int>(mine.code));
        std::_Exit(static_cast<int>(mine.code));
    }

    ExitCode conclude(const Ending& mine)
    {
        std::vector<Ending> endings(static_cast<std::size_t>(size_));
        check(MPI_Allgather(&mine, sizeof(Ending), MPI_BYTE, endings.data(), sizeof(Ending), MPI_BYTE, endings_comm_),
              "MPI_Allgather");
        const auto failed =
            std::find_if(endings.begin(), endings.end(), [](const Ending& ending) { return ending.has_failed != 0; });
        if (failed == endings.end()) { return static_cast<ExitCode>(endings.front().code); }
        const auto code = static_cast<ExitCode>(failed->code);
        if (rank_ == 0) { failure_.emplace(distinct_texts(endings), code, SourceLocation::current()); }
        return code;
    }

    MpiOptions options_;
    int rank_ = 0;
    int size_ = 1;
    MPI_Comm endings_comm_ = MPI_COMM_NULL;
    std::string what_it_did_;
    std::optional<Error> failure_;
};

}  // namespace
}  // namespace mpi

ExitCode run_with_mpi(const std::function<ExitCode(Communicator& world)>& body, const MpiOptions& options)
{
    const Launch launch = read_launch();
    const bool alone = launch.world == 1 && launch.launcher != "pmix";
    if (alone) { return body(*make_self_communicator("world")); }
    mpi::Job job(options);
    if (job.size() == 1)
    {
        job.finalize();
        check_launch(launch, 1);
        return body(*make_self_communicator("world"));
    }
    const ExitCode code = job.run(body);
    job.finalize();
    if (job.failure()) { throw Error(*job.failure()); }
    return code;
}

}  // namespace plimsoll

#else

namespace plimsoll
{

ExitCode run_with_mpi(const std::function<ExitCode(Communicator& world)>& body, const MpiOptions&)
{
    const Launch launch = read_launch();
    VALIDATE(launch.world == 1, UsageError,
             "{} started {} tasks, but this build has no MPI (each would take itself for the whole job). build it where "
             "MPICH's development files are installed",
             launch.launcher, launch.world);
    return body(*make_self_communicator("world"));
}

}  // namespace plimsoll

#endif
