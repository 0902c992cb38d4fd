// A CUDA plug-in without CUDA; what is wrong with it is chosen by the definitions it is compiled with.

#include "build_id.hpp"
#include "mem/plugin.hpp"

#ifdef FAKE_NEEDS_LIBRARY
extern "C" int fake_cuda_runtime();
#endif

namespace
{

int driver_version()
{
#ifdef FAKE_NEEDS_LIBRARY
    return fake_cuda_runtime();
#else
    return 13010;
#endif
}

int num_devices() { return 2; }
const char* error_text(int) { return "no error"; }

constexpr plimsoll::CudaPluginTable table{FAKE_ABI, FAKE_BUILD_ID, 13000, 22809, driver_version, num_devices, error_text};

}  // namespace

extern "C" const plimsoll::CudaPluginTable* FAKE_ENTRY() { return &table; }
