# LibTorch's CPU part from the torch wheel or an unpacked libtorch: LibTorch::cpu = libtorch_cpu + libc10, nothing else.
#
# find_package(Torch) of a CUDA wheel needs a CUDA toolkit and links libtorch_cuda; this needs neither. Looked for in
# LibTorch_ROOT (cache or environment): a torch folder, a venv, or a folder with include/ATen.

set(_torch_roots ${LibTorch_ROOT} $ENV{LibTorch_ROOT} ${PROJECT_SOURCE_DIR}/build/libtorch)
set(_torch_hints)
foreach(root IN LISTS _torch_roots)
    file(GLOB _in_venv ${root}/lib/python3*/site-packages/torch)
    list(APPEND _torch_hints ${root} ${_in_venv})
endforeach()

find_path(LibTorch_INCLUDE_DIR ATen/ATen.h HINTS ${_torch_hints} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${_torch_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${_torch_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)

if(LibTorch_INCLUDE_DIR AND EXISTS ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
    set(_torch_version_file ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
elseif(LibTorch_INCLUDE_DIR)
    set(_torch_version_file ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include/torch/version.h)
endif()
if(_torch_version_file AND EXISTS ${_torch_version_file})
    file(STRINGS ${_torch_version_file} _version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
    string(REGEX REPLACE "[^0-9;]" "" _version_numbers "${_version_lines}")
    string(REPLACE ";" "." LibTorch_VERSION "${_version_numbers}")
endif()

# Wheels before 2.7 were built with the old std::string: nothing links with them, at the very end of a build.
set(_torch_abi_hint "set LibTorch_ROOT to a venv with the torch wheel or an unpacked libtorch, or use -DWITH_TORCH=OFF")
if(LibTorch_CPU_LIBRARY)
    get_filename_component(_torch_folder ${LibTorch_CPU_LIBRARY} DIRECTORY)
    set(_torch_config ${_torch_folder}/../share/cmake/Torch/TorchConfig.cmake)
    if(EXISTS ${_torch_config})
        file(STRINGS ${_torch_config} _old_abi REGEX "GLIBCXX_USE_CXX11_ABI=0")
        if(_old_abi)
            set(_torch_abi_hint "LibTorch ${LibTorch_VERSION} in ${_torch_folder} was built with the old C++ ABI; use 2.7 or newer")
            set(LibTorch_CPU_LIBRARY LibTorch_CPU_LIBRARY-NOTFOUND)
        endif()
    endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
    REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
    VERSION_VAR LibTorch_VERSION
    REASON_FAILURE_MESSAGE "${_torch_abi_hint}")

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
    get_filename_component(LibTorch_LIBRARY_DIR ${LibTorch_CPU_LIBRARY} DIRECTORY)
    # The CUDA wheel's libtorch_cpu needs libcudart and libcupti at load time: the two small wheels beside it.
    file(GLOB _cuda_runtime_dirs ${LibTorch_LIBRARY_DIR}/../../nvidia/cu*/lib
         ${LibTorch_LIBRARY_DIR}/../../nvidia/cuda_runtime/lib ${LibTorch_LIBRARY_DIR}/../../nvidia/cuda_cupti/lib)
    add_library(LibTorch::cpu INTERFACE IMPORTED)
    target_include_directories(LibTorch::cpu SYSTEM INTERFACE ${LibTorch_INCLUDE_DIR}
                               ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include)
    target_link_libraries(LibTorch::cpu INTERFACE ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY})
    # Its include folder holds a newer fmt, which comes before the system's; that one's library would not match.
    target_compile_definitions(LibTorch::cpu INTERFACE FMT_HEADER_ONLY)
    # As link options, since CMake drops folders inside the source tree from the run path of what is installed.
    set(_link_options "LINKER:-rpath,${LibTorch_LIBRARY_DIR}")
    foreach(dir IN LISTS _cuda_runtime_dirs)
        file(REAL_PATH ${dir} dir)
        list(APPEND _link_options "LINKER:-rpath-link,${dir}" "LINKER:-rpath,${dir}")
    endforeach()
    target_link_options(LibTorch::cpu INTERFACE ${_link_options})
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY)
