#pragma once
/// Lines for people on stderr: a label in an 11-column field, then the text.
///
///     resume     ckpt/step_00000020: 75 tensors, digest ok
///     warning    disk is 97 % full (/scratch). free 12 GB before the next save

#include <cstdio>
#include <mutex>
#include <string_view>

namespace plimsoll
{

/// Writes whole lines, one at a time; safe to share between threads. Does not own the stream.
class Log
{
  public:
    /// nullptr: says nothing (all ranks of a job but the first).
    explicit Log(std::FILE* stream) : stream_(stream) {}
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    void row(std::string_view label, std::string_view text);
    void warning(std::string_view text) { row("warning", text); }
    void line(std::string_view text);

  private:
    std::FILE* stream_;
    std::mutex mutex_;
};

}  // namespace plimsoll
