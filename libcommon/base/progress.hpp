#pragma once
/// Progress of long work: on a terminal one line that is rewritten, elsewhere a row now and then without control
/// characters.
///
///     shard  61 %  ######################............   2.33 GB  214 MB/s  0:07 left

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

namespace plimsoll
{

/// What the amounts of a Progress are.
enum class ProgressUnit
{
    items,
    bytes
};

/// How a stream is written to: found out by is_terminal(), or given in tests.
enum class StreamKind
{
    terminal,
    log
};
StreamKind kind_of(std::FILE* stream);

/// One thread calls update(). The destructor ends an unfinished terminal line, so that an error starts on a new one.
class Progress
{
  public:
    using Clock = std::function<double()>;  ///< seconds, monotonic

    /// `total` <= 0: unknown, no percentage and no time left. Nothing is printed before the first update() that is due
    /// (0.5 s on a terminal, 30 s in a log).
    Progress(std::FILE* stream, StreamKind kind, std::string label, ProgressUnit unit, std::int64_t total,
             Clock clock = {});
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// `done` of total so far; `note` stands behind the rate ("107 MB/s/thread"). Cheap when nothing is due.
    void update(std::int64_t done, std::string_view note = {});
    /// Removes the terminal line (the summary that follows says the result).
    void finish();

    /// The line for `done` after `seconds`, without control characters.
    std::string render(std::int64_t done, double seconds, std::string_view note) const;

  private:
    std::FILE* stream_;
    StreamKind kind_;
    std::string label_;
    ProgressUnit unit_;
    std::int64_t total_;
    Clock clock_;
    double start_ = 0;
    double next_ = 0;
    std::size_t width_ = 0;  ///< of the line on the terminal
};

}  // namespace plimsoll
