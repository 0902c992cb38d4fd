#include "mem/plugin.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <string_view>

#include "base/error.hpp"
#include "build_id.hpp"

namespace plimsoll
{

namespace
{

constexpr const char* plugin_file = "libplimsoll_cuda.so";
constexpr const char* cannot = "cannot use device 'cuda'";

/// The wheel or package that brings a library the plug-in needs.
std::string_view provider_of(std::string_view library)
{
    if (library.find("libcudart") == 0) { return "pip install nvidia-cuda-runtime or the CUDA toolkit"; }
    if (library.find("libnccl") == 0) { return "pip install nvidia-nccl-cu13 or the package libnccl2"; }
    return "install the CUDA toolkit";
}

/// Turns the loader's text, "libcudart.so.13: cannot open shared object file: ...", into one of our lines.
[[noreturn]] void throw_load_failure(const std::string& path, std::string_view reason)
{
    const std::size_t colon = reason.find(": cannot open shared object file");
    const std::string_view library = reason.substr(0, colon);
    VALIDATE(colon == std::string_view::npos || library == path, ConfigError,
             "{} ({} needs {}, which is not found). {}, then put the library's folder into LD_LIBRARY_PATH", cannot,
             plugin_file, library, provider_of(library));
    throw ConfigError(fmt::format("{} ({} does not load: {})", cannot, plugin_file, reason));
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

std::string core_library_folder()
{
    Dl_info info{};
    ENSURE(dladdr(reinterpret_cast<const void*>(&core_library_folder), &info) != 0);
    return std::filesystem::weakly_canonical(info.dli_fname).parent_path().string();
}

const CudaPluginTable& load_cuda_plugin(const std::string& folder)
{
    const std::string path = (std::filesystem::path(folder) / plugin_file).string();
    VALIDATE(std::filesystem::exists(path), ConfigError,
             "{} ({} is not in '{}': built without CUDA). build with a CUDA toolkit and -DWITH_CUDA=ON, or use "
             "--device cpu",
             cannot, plugin_file, folder);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
    {
        const char* reason = dlerror();
        throw_load_failure(path, reason != nullptr ? reason : "no reason given");
    }
    using Entry = const CudaPluginTable* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(library, cuda_plugin_entry));
    VALIDATE(entry != nullptr, ConfigError, "{} ({} in '{}' has no function '{}': not a plug-in of plimsoll)", cannot,
             plugin_file, folder, cuda_plugin_entry);
    const CudaPluginTable& table = *entry();
    VALIDATE(table.abi == cuda_plugin_abi, ConfigError,
             "{} ({} has plug-in interface {}, this program has {}). install both from one build", cannot, plugin_file,
             table.abi, cuda_plugin_abi);
    VALIDATE(std::string_view(table.build_id) == PLIMSOLL_BUILD_ID, ConfigError,
             "{} ({} is of build '{}', this program of build '{}'). install both from one build", cannot, plugin_file,
             table.build_id, PLIMSOLL_BUILD_ID);
    return table;
}

int cuda_device_count(const CudaPluginTable& plugin)
{
    const int driver = plugin.driver_version();
    VALIDATE(driver > 0, ConfigError,
             "{} (no NVIDIA driver: libcuda.so.1 is not found or does not start). use a node with a GPU, or --device "
             "cpu",
             cannot);
    // Within one major version any driver runs any runtime.
    VALIDATE(driver / 1000 >= plugin.runtime_version / 1000, ConfigError,
             "{} (the driver supports CUDA {}, the plug-in needs {}). update the driver, or build with CUDA {}", cannot,
             version_text(driver), version_text(plugin.runtime_version), driver / 1000);
    const int devices = plugin.num_devices();
    VALIDATE(devices != 0, ConfigError,
             "{} (the driver sees 0 devices). check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu", cannot);
    VALIDATE(devices > 0, ConfigError, "{} (the CUDA runtime says: {}). check nvidia-smi and CUDA_VISIBLE_DEVICES", cannot,
             plugin.error_text(-devices));
    return devices;
}

void require_cuda_plugin()
{
    const int devices = cuda_device_count(load_cuda_plugin());
    throw ConfigError(
        fmt::format("device 'cuda' is not available in this version (plug-in and driver work, {} devices). use --device cpu",
                    devices));
}

}  // namespace plimsoll
