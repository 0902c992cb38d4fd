// The one symbol of libplimsoll_cuda.so. The CUDA runtime loads the driver itself, when it is first asked.

#include <cuda_runtime_api.h>

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include "build_id.hpp"
#include "mem/plugin.hpp"

namespace
{

int driver_version()
{
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

int num_devices()
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorNoDevice) { return 0; }
    return error == cudaSuccess ? count : -static_cast<int>(error);
}

const char* error_text(int error)
{
    return cudaGetErrorString(static_cast<cudaError_t>(error));
}

#ifdef NCCL_VERSION_CODE
constexpr int nccl_version = NCCL_VERSION_CODE;
#else
constexpr int nccl_version = 0;
#endif

constexpr plimsoll::CudaPluginTable table{plimsoll::cuda_plugin_abi, PLIMSOLL_BUILD_ID, CUDART_VERSION, nccl_version,
                                          driver_version,            num_devices,       error_text};

}  // namespace

extern "C" __attribute__((visibility("default"))) const plimsoll::CudaPluginTable* plimsoll_cuda_plugin()
{
    return &table;
}
