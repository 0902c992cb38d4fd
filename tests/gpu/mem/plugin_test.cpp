#include "mem/plugin.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

using namespace plimsoll;

TEST(CudaPluginOnADevice, CountsDevicesAndNamesItsVersions)
{
    try
    {
        const CudaPluginTable& plugin = load_cuda_plugin();
        EXPECT_GE(cuda_device_count(plugin), 1);
        EXPECT_GE(plugin.runtime_version, 11000);
        EXPECT_GE(plugin.driver_version(), plugin.runtime_version / 1000 * 1000);
        EXPECT_STREQ(plugin.error_text(0), "no error");
    }
    catch (const ConfigError& reason)
    {
        GTEST_SKIP() << reason.what();
    }
}
