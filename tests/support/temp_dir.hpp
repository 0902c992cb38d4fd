#pragma once
/// A fresh directory below the system's temporary one (or `parent`), removed with all that is in it at the end of a test.

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace plimsoll::testing
{

class TempDir
{
  public:
    explicit TempDir(const std::string& parent = std::filesystem::temp_directory_path().string())
        : path_(parent + "/plimsoll_test_XXXXXX")
    {
        if (::mkdtemp(path_.data()) == nullptr) { throw std::runtime_error("cannot make a directory in " + parent); }
    }
    ~TempDir()
    {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;

    const std::string& path() const { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

/// In memory where the system has such a place.
inline std::string fast_directory()
{
    return std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path().string();
}

}  // namespace plimsoll::testing
