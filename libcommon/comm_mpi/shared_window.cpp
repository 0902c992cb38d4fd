#include "comm_mpi/shared_window.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include "base/error.hpp"
#include "base/units.hpp"
#include "layout/collective_cost.hpp"

namespace plimsoll
{

/// Written by one member, polled by all others: a line of its own, and its neighbour, which the processor fetches along.
struct alignas(128) SharedWindow::Control
{
    std::array<std::atomic<std::int64_t>, num_stages> passed{};
};

struct alignas(64) SharedWindow::Signature
{
    std::array<char, 24> name{};
    std::int64_t op = 0;
    std::int64_t dtype = 0;
    std::int64_t count = 0;
};

namespace
{

constexpr std::int64_t page_bytes = 4096;

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }

std::string memory_name(std::uint64_t token) { return fmt::format("plimsoll-{:016x}", token); }

/// What the link /proc/PID/fd/N of that memory says.
std::string link_text(std::uint64_t token) { return fmt::format("/memfd:{} (deleted)", memory_name(token)); }

}  // namespace

static_assert(std::atomic<std::int64_t>::is_always_lock_free, "counters are shared between processes");

SharedWindow::SharedWindow(std::int64_t size, std::int64_t own)
    : size_(size), own_(own), ring_bytes_(collective_scratch_bytes(size) / slot_bytes * slot_bytes),
      num_slots_(ring_bytes_ / slot_bytes),
      member_control_bytes_(static_cast<std::int64_t>(sizeof(Control)) +
                            round_up(num_slots_ * static_cast<std::int64_t>(sizeof(Signature)), alignof(Control))),
      control_bytes_(round_up(size * member_control_bytes_, page_bytes))
{
    EXPECT(size >= 2 && own >= 0 && own < size && num_slots_ >= 2);
}

SharedWindow::~SharedWindow()
{
    if (memory_ != nullptr) { ::munmap(memory_, static_cast<std::size_t>(control_bytes_ + size_ * ring_bytes_)); }
    if (fd_ >= 0) { ::close(fd_); }
}

bool SharedWindow::fail(const std::string& what, int error)
{
    reason_ = fmt::format("{}: {}", what, std::strerror(error));
    return false;
}

SharedWindow::Offer SharedWindow::make()
{
    Offer offer;
    offer.pid = ::getpid();
    std::random_device random;
    offer.token = (std::uint64_t(random()) << 32) | random();
    fd_ = ::memfd_create(memory_name(offer.token).c_str(), MFD_CLOEXEC);
    if (fd_ < 0)
    {
        fail("memfd_create", errno);
        return offer;
    }
    const std::int64_t bytes = control_bytes_ + size_ * ring_bytes_;
    struct rlimit largest = {};
    if (::getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur < static_cast<rlim_t>(bytes))
    {
        fail("ulimit -f", EFBIG);  // beyond it the system sends a signal
        return offer;
    }
    // Pages come when they are first needed.
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
    {
        fail("ftruncate", errno);
        return offer;
    }
    if (map(fd_)) { offer.fd = fd_; }
    return offer;
}

bool SharedWindow::open(const Offer& offer)
{
    if (offer.fd < 0) { return false; }
    const std::string path = fmt::format("/proc/{}/fd/{}", offer.pid, offer.fd);
    // In another process namespace the number may be that of somebody else: look before anything is opened.
    std::array<char, 256> text{};
    const ssize_t length = ::readlink(path.c_str(), text.data(), text.size());
    if (length < 0) { return fail(path, errno); }
    if (std::string(text.data(), static_cast<std::size_t>(length)) != link_text(offer.token)) { return fail(path, ENOENT); }
    fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd_ < 0) { return fail(path, errno); }
    return map(fd_);
}

bool SharedWindow::map(int fd)
{
    void* memory = ::mmap(nullptr, static_cast<std::size_t>(control_bytes_ + size_ * ring_bytes_), PROT_READ | PROT_WRITE,
                          MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) { return fail("mmap", errno); }
    memory_ = static_cast<char*>(memory);
    return true;
}

void SharedWindow::reserve()
{
    if (is_reserved_) { return; }
    // Without it a system that has no page left would say so by a signal, in the middle of a copy.
    const std::int64_t first = control_bytes_ + own_ * ring_bytes_;
    if (::fallocate(fd_, 0, static_cast<off_t>(first), static_cast<off_t>(ring_bytes_)) != 0 && errno != EOPNOTSUPP)
    {
        throw OutOfMemory(fmt::format("cannot allocate {} of shared memory for a group of ranks ({})",
                                      format_memory(static_cast<double>(ring_bytes_)), std::strerror(errno)));
    }
    is_reserved_ = true;
}

std::atomic<std::int64_t>& SharedWindow::counter(std::int64_t member, Stage stage) const
{
    // Zero pages are counters at zero: no member has to construct them for the others.
    return reinterpret_cast<Control*>(memory_ + member * member_control_bytes_)->passed[stage];
}

SharedWindow::Signature& SharedWindow::signature(std::int64_t member, std::int64_t piece) const
{
    auto* first = reinterpret_cast<Signature*>(memory_ + member * member_control_bytes_ + sizeof(Control));
    return first[piece % num_slots_];
}

bool SharedWindow::others_passed(Stage stage, std::int64_t piece)
{
    if (seen_[stage] > piece) { return true; }
    std::int64_t least = INT64_MAX;
    for (std::int64_t member = 0; member < size_; ++member)
    {
        if (member == own_) { continue; }
        least = std::min(least, counter(member, stage).load(std::memory_order_acquire));
        if (least <= piece) { return false; }
    }
    seen_[stage] = least;
    return true;
}

void SharedWindow::sign(std::int64_t piece, const SharedCall& call)
{
    Signature& mine = signature(own_, piece);
    std::snprintf(mine.name.data(), mine.name.size(), "%s", call.name);
    mine.op = static_cast<std::int64_t>(call.op);
    mine.dtype = static_cast<std::int64_t>(call.dtype);
    mine.count = call.count;
}

std::string SharedWindow::disagreement(std::int64_t member, std::int64_t piece, const SharedCall& call) const
{
    const Signature& theirs = signature(member, piece);
    SharedCall other;
    other.name = theirs.name.data();
    other.op = static_cast<ReduceOp>(theirs.op);
    other.dtype = static_cast<Dtype>(theirs.dtype);
    other.count = theirs.count;
    const bool agrees = std::strcmp(other.name, call.name) == 0 && other.op == call.op && other.dtype == call.dtype &&
                        other.count == call.count;
    return agrees ? "" : text_of(other);
}

std::string text_of(const SharedCall& call)
{
    return fmt::format("{} of {} {} ({})", call.name, call.count, dtype_name(call.dtype),
                       call.op == ReduceOp::sum ? "sum" : "max");
}

}  // namespace plimsoll
