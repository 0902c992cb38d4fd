#include "comm/rank_activity.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.hpp"
#include "base/text_file.hpp"

namespace plimsoll
{

namespace
{

// Indices of 8-byte words; the table in the header gives the same as byte offsets.
enum Word : std::size_t
{
    word_magic = 0,
    word_version,
    word_state,
    word_rank,
    word_pid,
    word_start,
    word_step,
    word_progress,
    word_time,
    word_edits,
    word_under_way,
    word_sequence,
    word_number,
    word_group,
    word_host = word_group + 8,
    word_operation = word_host + 8,
    word_end = word_operation + 12,
};
constexpr std::size_t group_words = 8;
constexpr std::size_t operation_words = 12;
constexpr std::uint64_t layout_version = 1;
constexpr char magic_text[9] = "PLIMRANK";

std::uint64_t magic_word()
{
    std::uint64_t word = 0;
    std::memcpy(&word, magic_text, 8);
    return word;
}

/// Leaves at least one zero byte; words past the text's end keep old bytes, which no reader looks at.
void store_text(RankSlot& slot, std::size_t first, std::size_t num, std::string_view text)
{
    text = text.substr(0, num * 8 - 1);
    for (std::size_t i = 0; i * 8 <= text.size(); ++i)
    {
        std::uint64_t word = 0;
        const std::size_t num_bytes = std::min<std::size_t>(8, text.size() - i * 8);
        if (num_bytes > 0) { std::memcpy(&word, text.data() + i * 8, num_bytes); }
        slot.words[first + i].store(word, std::memory_order_relaxed);
    }
}

std::string text_of(const std::uint64_t* words, std::size_t num)
{
    std::string text(num * 8, '\0');
    std::memcpy(text.data(), words, text.size());
    text.resize(std::strlen(text.c_str()));
    return text;
}

std::int64_t coarse_wall_ns()
{
    timespec now = {};
    ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

struct ProcessEntry
{
    bool exists = false;
    char state = '?';
    std::uint64_t start_ticks = 0;
};

/// Of /proc/PID/stat: fields 3 and 22, counted after the last ')' since a name may hold anything.
ProcessEntry process_entry(std::int64_t pid)
{
    ProcessEntry entry;
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    if (!std::getline(file, text)) { return entry; }
    const std::size_t close = text.rfind(')');
    if (close == std::string::npos) { return entry; }
    std::size_t at = close + 2;
    entry.exists = at < text.size();
    if (!entry.exists) { return entry; }
    entry.state = text[at];
    for (int field = 3; field < 22 && at != std::string::npos; ++field)
    {
        at = text.find(' ', at);
        if (at != std::string::npos) { ++at; }
    }
    if (at != std::string::npos) { entry.start_ticks = std::strtoull(text.c_str() + at, nullptr, 10); }
    return entry;
}

std::string this_host()
{
    char name[HOST_NAME_MAX + 1] = {};
    ::gethostname(name, sizeof(name) - 1);
    return name;
}

std::shared_ptr<void> map_new_file(const std::string& path)
{
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    VALIDATE(fd >= 0, IoError, "cannot write the status file '{}' ({})", path, system_reason(errno));
    void* memory = MAP_FAILED;
    int error = ::posix_fallocate(fd, 0, sizeof(RankSlot));  // a full disk shows here and not as SIGBUS later
    if (error == 0)
    {
        memory = ::mmap(nullptr, sizeof(RankSlot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = errno;
    }
    ::close(fd);
    VALIDATE(memory != MAP_FAILED, IoError, "cannot map the status file '{}' ({})", path, system_reason(error));
    return std::shared_ptr<void>(memory, [](void* address) { ::munmap(address, sizeof(RankSlot)); });
}

/// One writer at a time: an even count is taken to odd. A second one that comes meanwhile lets its text go.
bool begin_edit(RankSlot& slot, std::uint64_t& edits)
{
    edits = slot.words[word_edits].load(std::memory_order_relaxed);
    const bool is_ours =
        edits % 2 == 0 && slot.words[word_edits].compare_exchange_strong(edits, edits + 1, std::memory_order_acq_rel);
    // The odd count is seen before any word of the text.
    std::atomic_thread_fence(std::memory_order_release);
    return is_ours;
}

void end_edit(RankSlot& slot, std::uint64_t edits)
{
    slot.words[word_time].store(static_cast<std::uint64_t>(coarse_wall_ns()), std::memory_order_relaxed);
    slot.words[word_edits].store(edits + 2, std::memory_order_release);
}

}  // namespace

std::string describe(const RankRecord& record)
{
    if (record.operation.empty() && record.step < 0) { return "before its first operation"; }
    std::string text = record.step < 0 ? "" : fmt::format("step {}", record.step);
    if (record.operation.empty()) { return text; }
    if (!text.empty()) { text += ", "; }
    text += record.under_way ? "in " : "after ";
    text += record.operation;
    if (!record.group.empty()) { text += fmt::format(" of '{}'", record.group); }
    if (record.sequence > 0) { text += fmt::format(" #{}", record.sequence); }
    return text;
}

RankRecord read_slot(const RankSlot& slot)
{
    std::array<std::uint64_t, RankSlot::num_words> words{};
    constexpr int num_tries = 200, num_naps = 30;
    for (int attempt = 0; attempt < num_tries + num_naps; ++attempt)
    {
        const std::uint64_t before = slot.words[word_edits].load(std::memory_order_acquire);
        for (std::size_t i = 0; i < word_end; ++i) { words[i] = slot.words[i].load(std::memory_order_acquire); }
        if (before % 2 == 0 && slot.words[word_edits].load(std::memory_order_acquire) == before) { break; }
        // A writer that lost its core in the middle gets it back within some time slices; one that was killed never does.
        if (attempt < num_tries) { std::this_thread::yield(); }
        else { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
    }
    VALIDATE(words[word_magic] == magic_word(), FormatError, "not the status of a rank (its first bytes are others)");
    VALIDATE(words[word_version] == layout_version, FormatError,
             "status of a rank in layout version {}, this program reads {}", words[word_version], layout_version);
    VALIDATE(words[word_state] <= 3, FormatError, "status of a rank with the unknown state {}", words[word_state]);
    RankRecord record;
    record.rank = static_cast<std::int64_t>(words[word_rank]);
    record.pid = static_cast<std::int64_t>(words[word_pid]);
    record.start_ticks = words[word_start];
    record.state = static_cast<RankState>(words[word_state]);
    record.step = static_cast<std::int64_t>(words[word_step]);
    record.progress = words[word_progress];
    record.time_ns = static_cast<std::int64_t>(words[word_time]);
    record.under_way = words[word_under_way] != 0;
    record.sequence = static_cast<std::int64_t>(words[word_sequence]);
    record.group = text_of(&words[word_group], group_words);
    record.host = text_of(&words[word_host], group_words);
    record.operation = text_of(&words[word_operation], operation_words);
    const auto number = static_cast<std::int64_t>(words[word_number]);
    if (number >= 0) { record.operation += fmt::format(" {}", number); }
    return record;
}

RankRecord read_rank_status(const std::string& path)
{
    std::ifstream file(path, std::ios::binary);
    VALIDATE(file.is_open(), IoError, "cannot read the status file '{}' ({})", path, system_reason(errno));
    std::array<char, sizeof(RankSlot)> bytes{};
    file.read(bytes.data(), bytes.size());
    VALIDATE(file.gcount() == static_cast<std::streamsize>(bytes.size()), FormatError,
             "{}: status of a rank has {} bytes, this has {}", path, bytes.size(), file.gcount());
    RankSlot slot;
    for (std::size_t i = 0; i < RankSlot::num_words; ++i)
    {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + i * 8, 8);
        slot.words[i].store(word, std::memory_order_relaxed);
    }
    return with_context(path, [&] { return read_slot(slot); });
}

std::string rank_status_path(const std::string& directory, std::int64_t rank)
{
    return fmt::format("{}/rank_{:05}.status", directory, rank);
}

Liveness liveness_of(const RankRecord& record, SeenBefore was_seen)
{
    if (record.pid <= 0 || record.host != this_host().substr(0, group_words * 8 - 1)) { return Liveness::unknown; }
    const ProcessEntry entry = process_entry(record.pid);
    const bool same = entry.exists && entry.start_ticks == record.start_ticks;
    if (same && entry.state != 'Z' && entry.state != 'X') { return Liveness::alive; }
    return same || was_seen == SeenBefore::yes ? Liveness::dead : Liveness::unknown;
}

struct RankActivity::Entry
{
    std::string_view operation;
    std::string_view group;
    std::int64_t sequence = -1;
    std::int64_t number = -1;
    bool under_way = false;
};

RankActivity::RankActivity(std::int64_t rank, RankSlot& slot, std::shared_ptr<void> memory)
{
    const auto put = [&](std::size_t word, std::uint64_t value)
    { slot.words[word].store(value, std::memory_order_relaxed); };
    put(word_version, layout_version);
    put(word_rank, static_cast<std::uint64_t>(rank));
    put(word_pid, static_cast<std::uint64_t>(::getpid()));
    put(word_start, process_entry(::getpid()).start_ticks);
    put(word_step, static_cast<std::uint64_t>(-1));
    put(word_sequence, static_cast<std::uint64_t>(-1));
    put(word_number, static_cast<std::uint64_t>(-1));
    put(word_time, static_cast<std::uint64_t>(coarse_wall_ns()));
    store_text(slot, word_host, group_words, this_host());
    put(word_state, static_cast<std::uint64_t>(RankState::running));
    slot.words[word_magic].store(magic_word(), std::memory_order_release);
    slots_.push_back(&slot);
    memory_.push_back(std::move(memory));
}

RankActivity::~RankActivity() = default;

void RankActivity::write_to(const std::string& directory)
{
    EXPECT(slots_.size() == 1);
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    VALIDATE(!error, IoError, "cannot make the directory '{}' ({})", directory, system_reason(error.value()));
    std::shared_ptr<void> memory = map_new_file(rank_status_path(directory, record().rank));
    auto* file = new (memory.get()) RankSlot;
    for (std::size_t i = 0; i < word_end; ++i)
    {
        const std::uint64_t word = slots_.front()->words[i].load(std::memory_order_relaxed);
        file->words[i].store(i == word_edits ? 0 : word, std::memory_order_relaxed);
    }
    slots_.push_back(file);
    memory_.push_back(std::move(memory));
}

void RankActivity::set_step(std::int64_t step)
{
    for (RankSlot* slot : slots_)
    {
        slot->words[word_step].store(static_cast<std::uint64_t>(step), std::memory_order_relaxed);
        slot->words[word_progress].fetch_add(1, std::memory_order_relaxed);
    }
}

void RankActivity::note(std::string_view operation, std::int64_t number)
{
    Entry entry;
    entry.operation = operation;
    entry.number = number;
    write(entry);
}

void RankActivity::begin(std::string_view operation, std::int64_t number, std::string_view group, std::int64_t sequence)
{
    Entry entry;
    entry.operation = operation;
    entry.number = number;
    entry.group = group;
    entry.sequence = sequence;
    entry.under_way = true;
    write(entry);
}

void RankActivity::end(std::string_view operation, std::int64_t number, std::string_view group, std::int64_t sequence)
{
    Entry entry;
    entry.operation = operation;
    entry.number = number;
    entry.group = group;
    entry.sequence = sequence;
    write(entry);
}

void RankActivity::tick()
{
    for (RankSlot* slot : slots_) { slot->words[word_progress].fetch_add(1, std::memory_order_relaxed); }
}

void RankActivity::set_state(RankState state)
{
    for (RankSlot* slot : slots_)
    {
        slot->words[word_state].store(static_cast<std::uint64_t>(state), std::memory_order_release);
        slot->words[word_progress].fetch_add(1, std::memory_order_relaxed);
    }
}

RankRecord RankActivity::record() const { return read_slot(*slots_.front()); }

void RankActivity::write(const Entry& entry)
{
    for (RankSlot* slot : slots_)
    {
        if (!entry.under_way) { slot->words[word_progress].fetch_add(1, std::memory_order_relaxed); }
        std::uint64_t edits = 0;
        if (!begin_edit(*slot, edits)) { continue; }
        store_text(*slot, word_operation, operation_words, entry.operation);
        store_text(*slot, word_group, group_words, entry.group);
        slot->words[word_sequence].store(static_cast<std::uint64_t>(entry.sequence), std::memory_order_relaxed);
        slot->words[word_number].store(static_cast<std::uint64_t>(entry.number), std::memory_order_relaxed);
        slot->words[word_under_way].store(entry.under_way ? 1 : 0, std::memory_order_relaxed);
        end_edit(*slot, edits);
    }
}

std::shared_ptr<RankBoard> RankBoard::in_memory(std::int64_t num_ranks)
{
    EXPECT(num_ranks >= 1);
    auto memory = std::make_shared<std::vector<RankSlot>>(static_cast<std::size_t>(num_ranks));
    std::vector<RankSlot*> slots;
    for (RankSlot& slot : *memory) { slots.push_back(&slot); }
    return std::make_shared<RankBoard>(std::move(slots), std::move(memory));
}

RankBoard::RankBoard(std::vector<RankSlot*> slots, std::shared_ptr<void> memory)
    : slots_(std::move(slots)), memory_(std::move(memory))
{
}

RankRecord RankBoard::read(std::int64_t rank) const { return read_slot(*slots_.at(static_cast<std::size_t>(rank))); }

std::uint64_t RankBoard::progress(std::int64_t rank) const
{
    return slots_.at(static_cast<std::size_t>(rank))->words[word_progress].load(std::memory_order_relaxed);
}

RankState RankBoard::state(std::int64_t rank) const
{
    const RankSlot* slot = slots_.at(static_cast<std::size_t>(rank));
    if (slot == nullptr) { return RankState::none; }
    return static_cast<RankState>(slot->words[word_state].load(std::memory_order_acquire));
}

std::unique_ptr<RankActivity> RankBoard::activity(std::int64_t rank) const
{
    return std::make_unique<RankActivity>(rank, *slots_.at(static_cast<std::size_t>(rank)), memory_);
}

}  // namespace plimsoll
