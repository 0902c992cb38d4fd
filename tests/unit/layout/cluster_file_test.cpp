#include "layout/cluster_file.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

using namespace plimsoll;

namespace
{

std::string fault_of(const std::string& text)
{
    try
    {
        parse_cluster_file(text, "c.json");
    }
    catch (const ConfigError& error)
    {
        return error.what();
    }
    return "no fault";
}

}  // namespace

TEST(ClusterFile, ReadsMemoryAndDevices)
{
    const ClusterFile cluster =
        parse_cluster_file(R"({"schema":1,"name":"a","device_memory":"80GiB","devices_per_node":8,"links":{}})", "c.json");
    EXPECT_EQ(cluster.name, "a");
    EXPECT_EQ(cluster.device_memory, std::int64_t{80} << 30);
    EXPECT_EQ(cluster.devices_per_node, 8);
}

TEST(ClusterFile, NameIsTheFilesUnlessGiven)
{
    const ClusterFile cluster = parse_cluster_file(R"({"device_memory":"1GB"})", "/x/small.json");
    EXPECT_EQ(cluster.name, "small");
    EXPECT_EQ(cluster.devices_per_node, 0);
}

TEST(ClusterFile, FaultsNameFileAndField)
{
    EXPECT_EQ(fault_of("{"), "c.json: not a JSON object");
    EXPECT_EQ(fault_of("[]"), "c.json: not a JSON object");
    EXPECT_EQ(fault_of("{}"), "c.json: device_memory is missing (memory of one rank, such as \"80GiB\")");
    EXPECT_EQ(fault_of(R"({"device_memory":"80GiB","devices_pr_node":8})"),
              "c.json: unknown field 'devices_pr_node'. nearest: devices_per_node");
    EXPECT_EQ(fault_of(R"({"schema":2,"device_memory":"80GiB"})"), "c.json: schema is not known (only 1)");
    EXPECT_NE(fault_of(R"({"device_memory":"80"})").find("c.json: device_memory: "), std::string::npos);
    EXPECT_NE(fault_of(R"({"device_memory":80})").find("c.json: device_memory"), std::string::npos);
    EXPECT_NE(fault_of(R"({"device_memory":"80GiB","devices_per_node":0})").find("c.json: devices_per_node"), std::string::npos);
}

TEST(ClusterFile, TheExampleReads)
{
    EXPECT_EQ(read_cluster_file(std::string(PLIMSOLL_SOURCE_DIR) + "/slurm/clusters/workstation.json").name, "workstation");
}
