#include "comm_mpi/run_with_mpi.hpp"

#include "comm/launch.hpp"

#ifdef PLIMSOLL_WITH_MPI

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "comm/job_end.hpp"
#include "comm_mpi/mpi_communicator.hpp"

namespace plimsoll
{
namespace mpi
{
namespace
{

constexpr auto wait_for_others = std::chrono::seconds(4);
// How long one that does not speak lets the speaker end the job, so that the line is out before the processes are gone.
constexpr auto wait_for_launcher = std::chrono::milliseconds(200);
constexpr auto wait_for_speaker = std::chrono::seconds(1);

/// Sends what this process prints to nowhere for its lifetime: MPI's remarks on a job that failed stand beside ours, and those
/// of its transport on the standard output.
class SilentProcess
{
  public:
    SilentProcess()
    {
        const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
        for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
        {
            std::fflush(fd == STDOUT_FILENO ? stdout : stderr);
            kept_.push_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
            if (nowhere >= 0 && kept_.back() >= 0) { ::dup2(nowhere, fd); }
        }
        if (nowhere >= 0) { ::close(nowhere); }
    }
    ~SilentProcess()
    {
        for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
        {
            const int kept = kept_[static_cast<std::size_t>(fd - STDOUT_FILENO)];
            if (kept < 0) { continue; }
            std::fflush(fd == STDOUT_FILENO ? stdout : stderr);
            ::dup2(kept, fd);
            ::close(kept);
        }
    }
    SilentProcess(const SilentProcess&) = delete;
    SilentProcess& operator=(const SilentProcess&) = delete;

  private:
    std::vector<int> kept_;
};

/// What the ranks of a node share: a rank that waits can see what the others do, and of several that fail one speaks.
class NodeMemory
{
  public:
    NodeMemory()
    {
        int world_size = 0, node_size = 0;
        MPI_Comm node = MPI_COMM_NULL;
        check(MPI_Comm_size(MPI_COMM_WORLD, &world_size), "MPI_Comm_size");
        check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
        check(MPI_Comm_size(node, &node_size), "MPI_Comm_size");
        void* mine = nullptr;
        check(MPI_Win_allocate_shared(sizeof(Place), sizeof(Place), MPI_INFO_NULL, node, &mine, &window_),
              "MPI_Win_allocate_shared");
        new (mine) Place();
        check(MPI_Barrier(node), "MPI_Barrier");
        slots_.resize(static_cast<std::size_t>(world_size), nullptr);
        const std::vector<int> world_ranks = ranks_in_world(node, node_size);
        for (int r = 0; r < node_size; ++r)
        {
            MPI_Aint bytes = 0;
            int unit = 0;
            void* place = nullptr;
            check(MPI_Win_shared_query(window_, r, &bytes, &unit, &place), "MPI_Win_shared_query");
            slots_[static_cast<std::size_t>(world_ranks[static_cast<std::size_t>(r)])] = &static_cast<Place*>(place)->slot;
            if (r == 0) { first_ = static_cast<Place*>(place); }
        }
        num_local_ = node_size;
        MPI_Comm_free(&node);
    }

    const std::vector<RankSlot*>& slots() const { return slots_; }
    std::int64_t num_local() const { return num_local_; }
    /// True for the first of the node that asks.
    bool may_speak() { return first_->flags.has_speaker.exchange(1) == 0; }
    NodeFlags& flags() { return first_->flags; }
    /// Collective.
    void free() { MPI_Win_free(&window_); }

  private:
    struct Place
    {
        RankSlot slot;
        alignas(64) NodeFlags flags;  // those of the node's first rank
    };

    static std::vector<int> ranks_in_world(MPI_Comm node, int node_size)
    {
        MPI_Group of_world = MPI_GROUP_NULL, of_node = MPI_GROUP_NULL;
        check(MPI_Comm_group(MPI_COMM_WORLD, &of_world), "MPI_Comm_group");
        check(MPI_Comm_group(node, &of_node), "MPI_Comm_group");
        std::vector<int> local(static_cast<std::size_t>(node_size)), global(local.size());
        std::iota(local.begin(), local.end(), 0);
        check(MPI_Group_translate_ranks(of_node, node_size, local.data(), of_world, global.data()),
              "MPI_Group_translate_ranks");
        MPI_Group_free(&of_world);
        MPI_Group_free(&of_node);
        return global;
    }

    MPI_Win window_ = MPI_WIN_NULL;
    std::vector<RankSlot*> slots_;
    Place* first_ = nullptr;
    std::int64_t num_local_ = 1;
};

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
        has_threads_ = provided >= MPI_THREAD_FUNNELED;
    }

    std::int64_t size() const { return size_; }

    ExitCode run(const std::function<ExitCode(Communicator& world)>& body)
    {
        // Whatever goes wrong here leaves the others in a wait for this rank.
        try
        {
            VALIDATE(has_threads_, CommError, "this MPI allows no threads beside the one that calls it");
            check(MPI_Comm_dup(MPI_COMM_WORLD, &end_comm_), "MPI_Comm_dup");
            memory_ = std::make_unique<NodeMemory>();
            const auto board = std::make_shared<RankBoard>(memory_->slots(), nullptr);
            auto engine = std::make_shared<Engine>(rank_, board, memory_->flags(), memory_->num_local(), options_);
            check(MPI_Barrier(end_comm_), "MPI_Barrier");
            const RankEnd mine = run_body(body, engine);
            wait_for_ends(mine, board);
            end_ = conclude(gather_ends(mine));
            engine.reset();
            memory_->free();
        }
        catch (...)
        {
            abort(end_of_current_exception());
        }
        return end_.code;
    }

    /// After run(), or instead of it.
    void finalize()
    {
        std::unique_ptr<SilentProcess> silent;
        if (!end_.message.empty()) { silent = std::make_unique<SilentProcess>(); }
        if (end_comm_ != MPI_COMM_NULL) { MPI_Comm_free(&end_comm_); }
        MPI_Finalize();
    }

    /// What rank 0 says for all; empty when there is nothing to say here.
    std::string message() const { return rank_ == 0 ? end_.message : ""; }

  private:
    RankEnd run_body(const std::function<ExitCode(Communicator& world)>& body, const std::shared_ptr<Engine>& engine)
    {
        RankEnd mine;
        try
        {
            MPI_Comm comm = MPI_COMM_NULL;
            check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
            const std::unique_ptr<Communicator> world = make_communicator(engine, comm, "world", everyone());
            mine.code = body(*world);
            engine->check_forgotten();
            engine->activity().set_state(RankState::done);
        }
        catch (...)
        {
            mine = end_of_current_exception();
            mine.place = describe(engine->activity().record());
            engine->activity().set_state(RankState::failed);
        }
        return mine;
    }

    std::vector<std::int64_t> everyone() const
    {
        std::vector<std::int64_t> ranks(static_cast<std::size_t>(size_));
        std::iota(ranks.begin(), ranks.end(), 0);
        return ranks;
    }

    /// A rank that failed gives the others four seconds to come to their end too.
    void wait_for_ends(const RankEnd& mine, const std::shared_ptr<RankBoard>& board)
    {
        Watchdog watchdog(board, "world", everyone(), rank_, options_.watchdog_s, EndedMembers::fine);
        watchdog.start("end of the job", -1, 0);
        MPI_Request request = MPI_REQUEST_NULL;
        check(MPI_Ibarrier(end_comm_, &request), "MPI_Ibarrier");
        const auto until = std::chrono::steady_clock::now() + wait_for_others;
        for (int done = 0;;)
        {
            check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
            if (done != 0) { return; }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (!mine.has_failed) { watchdog.check(); }
            else if (std::chrono::steady_clock::now() > until) { abort(mine); }
        }
    }

    std::vector<RankEnd> gather_ends(const RankEnd& mine)
    {
        const std::string bytes = to_bytes(mine);
        const auto num = static_cast<int>(bytes.size());
        std::vector<int> lengths(static_cast<std::size_t>(size_)), starts(lengths.size());
        check(MPI_Allgather(&num, 1, MPI_INT, lengths.data(), 1, MPI_INT, end_comm_), "MPI_Allgather");
        std::partial_sum(lengths.begin(), lengths.end() - 1, starts.begin() + 1);
        std::string all(static_cast<std::size_t>(starts.back() + lengths.back()), '\0');
        check(MPI_Allgatherv(bytes.data(), num, MPI_BYTE, all.data(), lengths.data(), starts.data(), MPI_BYTE, end_comm_),
              "MPI_Allgatherv");
        std::vector<RankEnd> ends;
        for (std::size_t r = 0; r < lengths.size(); ++r)
        {
            ends.push_back(end_from_bytes(
                all.substr(static_cast<std::size_t>(starts[r]), static_cast<std::size_t>(lengths[r]))));
        }
        return ends;
    }

    [[noreturn]] void abort(const RankEnd& mine)
    {
        if (!memory_ || memory_->may_speak())
        {
            std::string text = mine.text;
            std::replace(text.begin(), text.end(), '\n', ' ');
            const std::string place = mine.place.empty() ? "" : fmt::format(" ({})", mine.place);
            std::fprintf(stderr, "%s: rank %d%s: %s\n", program_invocation_short_name, rank_, place.c_str(), text.c_str());
            std::fflush(stderr);
            // The launcher must have passed it on before it kills: under load it lost the line.
            std::this_thread::sleep_for(wait_for_launcher);
        }
        else { std::this_thread::sleep_for(wait_for_speaker); }
        const SilentProcess silent;
        MPI_Abort(MPI_COMM_WORLD, static_cast<int>(mine.code));
        std::_Exit(static_cast<int>(mine.code));
    }

    MpiOptions options_;
    int rank_ = 0;
    int size_ = 1;
    bool has_threads_ = false;
    MPI_Comm end_comm_ = MPI_COMM_NULL;
    std::unique_ptr<NodeMemory> memory_;
    JobEnd end_;
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
    if (!job.message().empty()) { throw Error(job.message(), code, SourceLocation::current()); }
    return code;
}

void mpi_library_sum(BufferView data)
{
    EXPECT((data.dtype == Dtype::f32 || data.dtype == Dtype::f64) && data.count < std::int64_t(1) << 31);
    const MPI_Datatype type = data.dtype == Dtype::f32 ? MPI_FLOAT : MPI_DOUBLE;
    mpi::check(MPI_Allreduce(MPI_IN_PLACE, data.data, static_cast<int>(data.count), type, MPI_SUM, MPI_COMM_WORLD),
               "MPI_Allreduce");
}

/// MPICH: "MPICH Version:\t4.0.2\nMPICH Release date: ..."; Open MPI: "Open MPI v4.1.4, package: ..."
std::string mpi_library()
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<std::size_t>(length));
    const bool is_mpich = all.rfind("MPICH", 0) == 0;
    const std::size_t start = all.find_first_of("0123456789");
    if (start == std::string::npos) { return all.substr(0, all.find('\n')); }
    const std::string number = all.substr(start, all.find_first_not_of("0123456789.", start) - start);
    return (is_mpich ? "mpich " : all.substr(0, start)) + number;
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

void mpi_library_sum(BufferView) { throw InternalError("this build has no MPI"); }

std::string mpi_library() { return ""; }

}  // namespace plimsoll

#endif
