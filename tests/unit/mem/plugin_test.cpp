#include "mem/plugin.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "build_id.hpp"
#include "mem/device.hpp"

using namespace plimsoll;

namespace
{

std::string fake(const std::string& name) { return std::string(PLIMSOLL_FAKE_PLUGINS) + "/" + name; }

std::string refusal(const std::function<void()>& body)
{
    try
    {
        body();
    }
    catch (const ConfigError& error)
    {
        return error.what();
    }
    return "not refused";
}

std::string load_refusal(const std::string& name)
{
    return refusal([&] { load_cuda_plugin(fake(name)); });
}

CudaPluginTable table_with(int (*driver_version)(), int (*num_devices)())
{
    CudaPluginTable table{};
    table.abi = cuda_plugin_abi;
    table.build_id = "any";
    table.runtime_version = 13000;
    table.driver_version = driver_version;
    table.num_devices = num_devices;
    table.error_text = [](int error) { return error == 999 ? "unknown error" : "another error"; };
    return table;
}

std::string device_refusal(const CudaPluginTable& table)
{
    return refusal([&] { cuda_device_count(table); });
}

}  // namespace

TEST(CudaPlugin, IsMissingInABuildWithoutCuda)
{
    const std::string folder = fake("nowhere");
    EXPECT_EQ(load_refusal("nowhere"),
              "cannot use device 'cuda' (libplimsoll_cuda.so is not in '" + folder +
                  "': built without CUDA). build with a CUDA toolkit and -DWITH_CUDA=ON, or use --device cpu");
}

TEST(CudaPlugin, NamesTheLibraryThatItNeedsAndTheWheelThatHasIt)
{
    EXPECT_EQ(load_refusal("no_runtime"),
              "cannot use device 'cuda' (libplimsoll_cuda.so needs libcudart.so.99, which is not found). pip install "
              "nvidia-cuda-runtime or the CUDA toolkit, then put the library's folder into LD_LIBRARY_PATH");
}

TEST(CudaPlugin, RefusesAFileThatIsNoLibrary)
{
    const std::filesystem::path folder = std::filesystem::temp_directory_path() / "plimsoll_no_library";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "libplimsoll_cuda.so") << "not a library";
    const std::string text = refusal([&] { load_cuda_plugin(folder.string()); });
    std::filesystem::remove_all(folder);
    EXPECT_EQ(text.find("cannot use device 'cuda' (libplimsoll_cuda.so does not load: "), 0u) << text;
}

TEST(CudaPlugin, RefusesALibraryThatIsNoPlugin)
{
    EXPECT_EQ(load_refusal("no_entry"), "cannot use device 'cuda' (libplimsoll_cuda.so in '" + fake("no_entry") +
                                            "' has no function 'plimsoll_cuda_plugin': not a plug-in of plimsoll)");
}

TEST(CudaPlugin, RefusesAnotherInterface)
{
    EXPECT_EQ(load_refusal("other_abi"),
              "cannot use device 'cuda' (libplimsoll_cuda.so has plug-in interface 7, this program has 1). install both "
              "from one build");
}

TEST(CudaPlugin, RefusesAnotherBuild)
{
    EXPECT_EQ(load_refusal("other_build"), "cannot use device 'cuda' (libplimsoll_cuda.so is of build 'v0-other', this "
                                           "program of build '" PLIMSOLL_BUILD_ID
                                           "'). install both from one build");
}

TEST(CudaPlugin, OfTheSameBuildIsLoaded)
{
    const CudaPluginTable& table = load_cuda_plugin(fake("good"));
    EXPECT_EQ(table.runtime_version, 13000);
    EXPECT_EQ(table.nccl_version, 22809);
    EXPECT_EQ(cuda_device_count(table), 2);
}

TEST(CudaPlugin, NeedsADriver)
{
    EXPECT_EQ(device_refusal(table_with([] { return 0; }, [] { return 1; })),
              "cannot use device 'cuda' (no NVIDIA driver: libcuda.so.1 is not found or does not start). use a node with "
              "a GPU, or --device cpu");
}

TEST(CudaPlugin, NeedsADriverOfItsMajorVersion)
{
    EXPECT_EQ(device_refusal(table_with([] { return 12080; }, [] { return 1; })),
              "cannot use device 'cuda' (the driver supports CUDA 12.8, the plug-in needs 13.0). update the driver, or "
              "build with CUDA 12");
    EXPECT_EQ(cuda_device_count(table_with([] { return 13000; }, [] { return 1; })), 1);
    EXPECT_EQ(cuda_device_count(table_with([] { return 14000; }, [] { return 8; })), 8);
}

TEST(CudaPlugin, NeedsADevice)
{
    EXPECT_EQ(device_refusal(table_with([] { return 13000; }, [] { return 0; })),
              "cannot use device 'cuda' (the driver sees 0 devices). check nvidia-smi and CUDA_VISIBLE_DEVICES, or use "
              "--device cpu");
    EXPECT_EQ(device_refusal(table_with([] { return 13000; }, [] { return -999; })),
              "cannot use device 'cuda' (the CUDA runtime says: unknown error). check nvidia-smi and CUDA_VISIBLE_DEVICES");
}

TEST(CudaPlugin, IsLookedForBesideTheCoreLibraries)
{
    EXPECT_TRUE(std::filesystem::exists(core_library_folder() + "/libplimsoll_mem.so"));
}

TEST(CudaPlugin, IsAlwaysRefusedInThisVersion)
{
    const std::string text = refusal([] { require_cuda_plugin(); });
    EXPECT_TRUE(text.find("cannot use device 'cuda' (") == 0 || text.find("device 'cuda' is not available") == 0) << text;
}

TEST(Device, IsNamedAsTheUserWritesIt)
{
    EXPECT_EQ(to_string(Device{}), "cpu");
    EXPECT_EQ(to_string(Device{DeviceKind::cuda, 3}), "cuda:3");
}

TEST(Stream, OnTheCpuHasNothingToWaitFor)
{
    Stream stream;
    Event event;
    EXPECT_TRUE(event.query());
    event.record(stream);
    stream.wait(event);
    stream.synchronize();
    event.synchronize();
    EXPECT_TRUE(event.query());
    EXPECT_EQ(stream.device(), Device{});
}
