#include "base/output_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace plimsoll;
using plimsoll::testing::expect_error;
using plimsoll::testing::TempDir;

TEST(OutputFolder, FindsWhatExistsAndWhatIsMissing)
{
    const TempDir dir;
    const std::string here = dir / "there";
    std::filesystem::create_directory(here);
    EXPECT_EQ(existing_folder(here), here);
    EXPECT_EQ(existing_folder(here + "/"), here);
    EXPECT_EQ(existing_folder(here + "/a/b/"), here);
    EXPECT_EQ(first_missing_folder(here), "");
    EXPECT_EQ(first_missing_folder(here + "/a/b/"), here + "/a");
    EXPECT_EQ(existing_folder("/"), "/");
    EXPECT_EQ(first_missing_folder("/"), "");
    EXPECT_EQ(first_missing_folder("nothing_of_this_name/a"), (std::filesystem::current_path() / "nothing_of_this_name").string());
}

TEST(OutputFolder, NothingIsMadeAndTheFaultIsNamed)
{
    const TempDir dir;
    const std::string missing = dir / "a/b";
    require_writable(missing, "choose another");
    EXPECT_FALSE(std::filesystem::exists(dir / "a"));
    std::ofstream(dir / "file") << "text";
    const std::string below = dir / "file/runs";
    expect_error<IoError>([&] { require_writable(below, "choose another"); },
                          "cannot write to '" + below + "' ('" + (dir / "file") + "': not a directory). choose another");
}

TEST(OutputFolder, AFolderWithoutPermissionIsNamed)
{
    const TempDir dir;
    const std::string closed = dir / "closed";
    std::filesystem::create_directory(closed);
    std::filesystem::permissions(closed, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    const bool is_root = ::geteuid() == 0;
    if (is_root && ::seteuid(65534) != 0) { GTEST_SKIP() << "root may write anywhere, and cannot become another user here"; }
    std::string message;
    try
    {
        require_writable(closed + "/runs/a", "choose another");
    }
    catch (const IoError& error)
    {
        message = error.what();
    }
    if (is_root) { ASSERT_EQ(::seteuid(0), 0); }
    // The outer folder of the test may be closed to that user, too.
    EXPECT_NE(message.find("permission denied). choose another"), std::string::npos) << message;
}
