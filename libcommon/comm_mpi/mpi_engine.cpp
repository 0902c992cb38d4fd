#include "comm_mpi/mpi_engine.hpp"

#ifdef PLIMSOLL_WITH_MPI

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"

namespace plimsoll::mpi
{
namespace
{

constexpr std::int64_t millisecond_ns = 1000000;
constexpr int turns_between_probes = 16;
constexpr auto wait_for_receivers = std::chrono::milliseconds(500);

}  // namespace

void check(int code, const char* what)
{
    if (code == MPI_SUCCESS) { return; }
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    std::string words(text, static_cast<std::size_t>(length));
    std::replace(words.begin(), words.end(), '\n', ' ');
    throw CommError(fmt::format("{} failed ({})", what, words));
}

Engine::Engine(std::int64_t rank, std::shared_ptr<RankBoard> board, NodeFlags& flags, std::int64_t local_ranks,
               const MpiOptions& options)
    : OperationQueue(rank, board->activity(rank)), board_(std::move(board)), flags_(flags), options_(options),
      num_spins_(local_ranks <= static_cast<std::int64_t>(std::thread::hardware_concurrency()) ? 500 : 10)
{
    EXPECT(options.largest_message >= 1 && options.largest_message < std::int64_t(1) << 31);
}

void Engine::warn_once(const std::string& text)
{
    if (flags_.has_warned.exchange(1) == 0) { Log(stderr).warning(text); }
}

void Engine::look()
{
    if (flags_.given_up.load(std::memory_order_acquire) == 0) { return; }
    throw CutOffError(fmt::format("rank {} stopped because another rank failed", rank()));
}

/// Tests again at once while a core is its own, then lets others run, and sleeps in the end: what is waited for may take
/// long. A large message moves in MPI's own fragments, which are no progress here: so it yields for milliseconds.
void Engine::rest(int idle)
{
    if (idle % turns_between_probes == 0)
    {
        // An operation through shared memory makes no call that lets MPI finish what it still has to send.
        int is_there = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
    }
    if (idle < num_spins_)
    {
        pause_cpu();
        return;
    }
    const std::int64_t now = steady_now_ns();
    if (idle == num_spins_) { idle_since_ns_ = now; }
    const std::int64_t idle_ns = now - idle_since_ns_;
    if (idle_ns > 5 * millisecond_ns || !polite_.yield())
    {
        std::this_thread::sleep_for(std::chrono::microseconds(idle_ns < 200 * millisecond_ns ? 20 : 500));
    }
}

MessageOperation::MessageOperation(Engine& engine, std::shared_ptr<Watchdog> watches, const char* what, std::int64_t peer,
                                   std::int64_t which)
    : engine_(engine)
{
    watchdog = std::move(watches);
    name = what;
    number = peer;
    sequence = which;
}

bool MessageOperation::advance()
{
    if (!requests_.empty())
    {
        int all = 0;
        check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE), name);
        if (all == 0) { return false; }
        requests_.clear();
        is_receive_.clear();
    }
    // A round without a message is complete at once.
    while (requests_.empty() && !is_done) { is_done = !next_round(); }
    return true;
}

void MessageOperation::withdraw() noexcept
{
    for (std::size_t i = 0; i < requests_.size(); ++i)
    {
        if (is_receive_[i] && requests_[i] != MPI_REQUEST_NULL) { MPI_Cancel(&requests_[i]); }
    }
    if (!finish_round())
    {
        engine_.give_up();
        for (MPI_Request& request : requests_)
        {
            if (request != MPI_REQUEST_NULL) { MPI_Request_free(&request); }
        }
    }
    requests_.clear();
    is_receive_.clear();
}

bool MessageOperation::finish_round() noexcept
{
    const auto until = std::chrono::steady_clock::now() + wait_for_receivers;
    for (;;)
    {
        int all = 0;
        const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE);
        if (code == MPI_SUCCESS && all != 0) { return true; }
        if (code != MPI_SUCCESS || std::chrono::steady_clock::now() > until) { return false; }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

void MessageOperation::post_send(MPI_Comm comm, const void* data, std::int64_t bytes, int peer, int tag)
{
    for (std::int64_t at = 0; at == 0 || at < bytes; at += engine_.largest_message())
    {
        MPI_Request request = MPI_REQUEST_NULL;
        const auto count = static_cast<int>(std::min(bytes - at, engine_.largest_message()));
        check(MPI_Isend(static_cast<const char*>(data) + at, count, MPI_BYTE, peer, tag, comm, &request), name);
        requests_.push_back(request);
        is_receive_.push_back(false);
    }
}

void MessageOperation::post_recv(MPI_Comm comm, void* data, std::int64_t bytes, int peer, int tag)
{
    for (std::int64_t at = 0; at == 0 || at < bytes; at += engine_.largest_message())
    {
        MPI_Request request = MPI_REQUEST_NULL;
        const auto count = static_cast<int>(std::min(bytes - at, engine_.largest_message()));
        check(MPI_Irecv(static_cast<char*>(data) + at, count, MPI_BYTE, peer, tag, comm, &request), name);
        requests_.push_back(request);
        is_receive_.push_back(true);
    }
}

}  // namespace plimsoll::mpi

#endif
