#pragma once
/// What hdf5.cpp and hdf5_object.cpp share: the lock, and how the library's error stack becomes an exception.

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace plimsoll::hdf5_detail
{

/// Held during every call into the library: serialises, and keeps this thread's error stack from being printed.
class Session
{
  public:
    Session();

  private:
    std::lock_guard<std::recursive_mutex> lock_;
};

/// What went wrong, taken from the error stack (deepest entry); clears the stack.
struct Failure
{
    std::string reason;
    int error_number = 0; ///< errno that the library mentions, 0 when none
};
Failure take_failure();

/// Throws FormatError "x.h5: /path: cannot read (reason)", or IoError when the operating system refused.
[[noreturn]] void fail(const std::string& where, std::string_view action);

/// fail() unless `status` is a success (>= 0); returns it.
template<class Status>
Status check(Status status, const std::string& where, std::string_view action)
{
    if (status < 0) { fail(where, action); }
    return status;
}

}  // namespace plimsoll::hdf5_detail
