# Flags, warnings, sanitizers, compiler cache and job pools of every target.

# -g1: backtraces with file and line at a tenth of the size of -g. Own kernels ask for -O3 themselves (nn/CMakeLists.txt).
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g")
if(SANITIZE)
    # Names and lines in a report, yet fast enough to run every unit test.
    set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -fno-omit-frame-pointer")
endif()

add_library(plimsoll_warnings INTERFACE)
target_compile_options(plimsoll_warnings INTERFACE -Wall -Wextra -Wnon-virtual-dtor -Woverloaded-virtual)
if(NOT UNITY)
    target_compile_options(plimsoll_warnings INTERFACE -Wshadow)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Both take what is included after an unnamed namespace for another file.
    target_compile_options(plimsoll_warnings INTERFACE -Wno-subobject-linkage)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC bug 105651: false alarm on every "literal" + std::string at -O2 and above.
    target_compile_options(plimsoll_warnings INTERFACE -Wno-restrict)
endif()

if(SANITIZE)
    if(WITH_TORCH)
        message(FATAL_ERROR "SANITIZE=${SANITIZE} needs WITH_TORCH=OFF (LibTorch is not instrumented and reports its own faults)")
    endif()
    add_compile_options(-fsanitize=${SANITIZE} -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${SANITIZE})
else()
    add_link_options(LINKER:--no-undefined)
endif()
add_link_options(LINKER:--as-needed)

# A thread sanitizer of this age cannot live with the address randomisation of recent kernels.
set(PLIMSOLL_TEST_LAUNCHER)
if(SANITIZE MATCHES "thread")
    find_program(SETARCH_PROGRAM setarch REQUIRED)
    set(PLIMSOLL_TEST_LAUNCHER ${SETARCH_PROGRAM} ${CMAKE_SYSTEM_PROCESSOR} -R)
endif()

# Paths below the source folder are recorded relative to it: messages stay short, and one compiler cache serves all
# build folders and clones. A precompiled header is only cached with the sloppiness named here. CCACHE_DEPEND takes the
# headers from the compiler's own list: a first build then costs no preprocessor run beside each compilation.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER env
        "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
        "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 ${CCACHE_PROGRAM})
    set(PLIMSOLL_PCH_OPTIONS $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

# A unit with torch headers takes up to 1.5 GB: as many at once as memory has room for.
cmake_host_system_information(RESULT _memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT _cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR _torch_jobs "${_memory_mib} / 2500")
if(_torch_jobs LESS 1)
    set(_torch_jobs 1)
elseif(_torch_jobs GREATER _cores)
    set(_torch_jobs ${_cores})
endif()
set_property(GLOBAL APPEND PROPERTY JOB_POOLS torch_pool=${_torch_jobs})
