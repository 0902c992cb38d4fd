#pragma once
/// Loads the CUDA plug-in, libplimsoll_cuda.so, which no binary links: it lies beside the core libraries and comes into the
/// process only when a device is asked for. Each way in which that can fail is one line that says what to do.
///
/// Thread-safe. A plug-in stays loaded until the process ends.

#include <string>

namespace plimsoll
{

/// What the table below looks like; a plug-in with another number is refused before anything else of it is read.
constexpr int cuda_plugin_abi = 1;

extern "C"
{
    /// All that the plug-in offers. `abi` and `build_id` come first in every version of the table.
    struct CudaPluginTable
    {
        int abi;              ///< cuda_plugin_abi
        const char* build_id; ///< of the build that made the plug-in; must equal the core libraries'
        int runtime_version;  ///< CUDA runtime, 1000 * major + 10 * minor
        int nccl_version;     ///< NCCL that it was built with, 10000 * major + 100 * minor + patch; 0: none
        /// Newest CUDA that the installed driver supports, as runtime_version; 0: no driver.
        int (*driver_version)();
        /// Devices that this process may use; negative: minus the runtime's error number.
        int (*num_devices)();
        /// The runtime's text for such an error number. Never null.
        const char* (*error_text)(int error);
    };
}

/// Name of the function of the plug-in that returns `const CudaPluginTable*`.
inline constexpr const char* cuda_plugin_entry = "plimsoll_cuda_plugin";

/// The folder that holds the core libraries of this process.
std::string core_library_folder();

/// Loads libplimsoll_cuda.so from `folder` and checks interface and build, but neither driver nor devices.
/// @throws ConfigError when it is missing, cannot be loaded or belongs to another build
const CudaPluginTable& load_cuda_plugin(const std::string& folder = core_library_folder());

/// Number of devices, at least one, through a loaded plug-in.
/// @throws ConfigError without a driver, with one too old for the plug-in, or without a device
int cuda_device_count(const CudaPluginTable& plugin);

/// What `--device cuda` needs. This version has no CUDA execution: when plug-in, driver and device are all there, the
/// error says so.
/// @throws ConfigError always
[[noreturn]] void require_cuda_plugin();

}  // namespace plimsoll
