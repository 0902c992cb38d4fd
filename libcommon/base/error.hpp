#pragma once
/// Errors as types: what went wrong decides the exit code, the text is one line for a person.
///
/// Grammar of a message: problem (reason). hint. Lower case, numbers with names and units, values
/// quoted. Example: tp*pp*dp = 24 does not equal world size 32 (8 ranks would be idle). nearest: dp=4
///
/// Library code throws these and nothing else; only run_tool() prints them and chooses the exit code.

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/source_location.hpp"

namespace plimsoll
{

/// Exit codes shared by all tools (docs/architecture.md, "A tool").
enum class ExitCode : int
{
    done = 0,
    failed = 1,       ///< anything without a better code
    usage = 2,        ///< command line, run file or input that the user can mend
    interrupted = 75, ///< stopped early on purpose, please continue (requeue)
    fatal = 93,       ///< a restart would fail the same way: diverged, corrupt input, disk full
};

/// Base of all errors: text, where it was raised, and a chain of what was being done.
class Error : public std::runtime_error
{
  public:
    Error(std::string text, ExitCode exit_code, SourceLocation where)
        : std::runtime_error(text), text_(std::move(text)), exit_code_(exit_code), where_(where)
    {
        rebuild();
    }

    /// The message with its context: "while writing shard_00003.h5: no space left on device (...)".
    const char* what() const noexcept override { return full_.c_str(); }

    const std::string& text() const noexcept { return text_; }
    ExitCode exit_code() const noexcept { return exit_code_; }
    const SourceLocation& where() const noexcept { return where_; }

    /// Adds an outer context, e.g. "while writing shard_00003.h5". Rethrow with `throw;` afterwards.
    void add_context(std::string context)
    {
        context_.push_back(std::move(context));
        rebuild();
    }

    /// Replaces the exit code where the caller knows better (a corrupt input during training is fatal).
    void set_exit_code(ExitCode code) noexcept { exit_code_ = code; }

  private:
    void rebuild()
    {
        full_.clear();
        for (auto it = context_.rbegin(); it != context_.rend(); ++it) { full_ += *it + ": "; }
        full_ += text_;
    }

    std::string text_;
    std::string full_;
    ExitCode exit_code_;
    SourceLocation where_;
    std::vector<std::string> context_;
};

/// Defines an error type with its default exit code.
#define PLIMSOLL_DEFINE_ERROR(Name, code)                                                          \
    class Name : public Error                                                                      \
    {                                                                                              \
      public:                                                                                      \
        explicit Name(std::string text, SourceLocation where = SourceLocation::current())          \
            : Error(std::move(text), code, where)                                                  \
        {                                                                                          \
        }                                                                                          \
    }

PLIMSOLL_DEFINE_ERROR(UsageError, ExitCode::usage);        ///< command line
PLIMSOLL_DEFINE_ERROR(ConfigError, ExitCode::usage);       ///< run file, config.json, layout
PLIMSOLL_DEFINE_ERROR(IoError, ExitCode::failed);          ///< the operating system refused
PLIMSOLL_DEFINE_ERROR(FormatError, ExitCode::usage);       ///< a file is not what it should be
PLIMSOLL_DEFINE_ERROR(CommError, ExitCode::failed);        ///< ranks disagree or do not answer
PLIMSOLL_DEFINE_ERROR(OutOfMemory, ExitCode::failed);      ///< request, use and limit named
PLIMSOLL_DEFINE_ERROR(NumericError, ExitCode::fatal);      ///< NaN, Inf, diverged
PLIMSOLL_DEFINE_ERROR(Interrupted, ExitCode::interrupted); ///< stopped early, state saved
PLIMSOLL_DEFINE_ERROR(InternalError, ExitCode::failed);    ///< a fault of ours

/// Another rank failed: its own error matters more than this one.
class CutOffError : public CommError
{
  public:
    using CommError::CommError;
};

/// Runs `body`; an Error that leaves it gets `context` added.
template<class Body>
auto with_context(std::string_view context, Body&& body) -> decltype(body())
{
    try
    {
        return body();
    }
    catch (Error& error)
    {
        error.add_context(std::string(context));
        throw;
    }
}

}  // namespace plimsoll

/// What a user can get wrong: VALIDATE(cond, ConfigError, "batch {} is not ...", batch). Always on.
#define VALIDATE(condition, ErrorType, ...)                                                        \
    do                                                                                             \
    {                                                                                              \
        if (!(condition)) { throw ErrorType(fmt::format(__VA_ARGS__)); }                           \
    } while (false)

/// Precondition that only a programmer can break. Always on: none stands in an inner loop.
#define EXPECT(condition)                                                                          \
    do                                                                                             \
    {                                                                                              \
        if (!(condition))                                                                          \
        {                                                                                          \
            throw ::plimsoll::InternalError(                                                       \
                fmt::format("precondition failed: {} ({}:{})", #condition, __FILE__, __LINE__));   \
        }                                                                                          \
    } while (false)

/// Postcondition or invariant that only a programmer can break.
#define ENSURE(condition)                                                                          \
    do                                                                                             \
    {                                                                                              \
        if (!(condition))                                                                          \
        {                                                                                          \
            throw ::plimsoll::InternalError(                                                       \
                fmt::format("invariant failed: {} ({}:{})", #condition, __FILE__, __LINE__));      \
        }                                                                                          \
    } while (false)
