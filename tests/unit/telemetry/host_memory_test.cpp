#include "telemetry/host_memory.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/text_file.hpp"
#include "support/temp_dir.hpp"

using namespace plimsoll;

namespace
{

class HostMemory : public ::testing::Test
{
  protected:
    void write(const std::string& name, const std::string& text)
    {
        const std::filesystem::path path = dir_.path() + "/" + name;
        std::filesystem::create_directories(path.parent_path());
        replace_text(path.string(), text);
    }
    std::int64_t bytes() const { return machine_memory_bytes(dir_.path() + "/proc", dir_.path() + "/cgroup"); }

    plimsoll::testing::TempDir dir_;
};

}  // namespace

TEST_F(HostMemory, UnknownIsZero) { EXPECT_EQ(bytes(), 0); }

TEST_F(HostMemory, IsTheMachinesWithoutGroups)
{
    write("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\n");
    EXPECT_EQ(bytes(), 1024000);
}

TEST_F(HostMemory, TheLeastOfAllGroupsAboveCounts)
{
    write("proc/meminfo", "MemTotal:       1000 kB\n");
    write("proc/self/cgroup", "0::/job_1/step_0\n");
    write("cgroup/job_1/step_0/memory.max", "max\n");
    EXPECT_EQ(bytes(), 1024000);
    write("cgroup/job_1/memory.max", "5000\n");
    EXPECT_EQ(bytes(), 5000);
    write("cgroup/memory.max", "4000\n");  // as a container sees its own group
    EXPECT_EQ(bytes(), 4000);
}

TEST_F(HostMemory, ReadsTheOlderGroupsToo)
{
    write("proc/meminfo", "MemTotal:       1000 kB\n");
    write("proc/self/cgroup", "7:cpu,cpuacct:/x\n5:hugetlb,memory:/job_1\n");
    write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write("cgroup/memory/job_1/memory.limit_in_bytes", "3000\n");
    EXPECT_EQ(bytes(), 3000);
}

TEST_F(HostMemory, ThisMachineHasSome) { EXPECT_GT(machine_memory_bytes(), 1 << 20); }
