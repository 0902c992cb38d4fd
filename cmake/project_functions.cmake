# One function per kind of target, so that a CMakeLists.txt of a layer is a list of names.

# plimsoll_unity(TARGET) lets several of a target's own sources be one compilation where the build asks for it. Helpers in the
# unnamed namespaces of one target then need different names. What a source forgets to include only shows without, so the
# presets for developers, and clang, compile each source by itself.
function(plimsoll_unity target)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${UNITY} UNITY_BUILD_BATCH_SIZE 12)
endfunction()

# plimsoll_layer(NAME base PUBLIC plimsoll::layout PRIVATE hdf5::hdf5)
# makes the shared library plimsoll_<NAME> of all .cpp and .hpp files in and below the calling folder; PUBLIC names layers
# or imported targets that its headers use.
function(plimsoll_layer)
    cmake_parse_arguments(ARG "" "NAME" "PUBLIC;PRIVATE" ${ARGN})
    set(target plimsoll_${ARG_NAME})
    file(GLOB_RECURSE ARG_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
    file(GLOB_RECURSE ARG_HEADERS CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.hpp)
    if(NOT ARG_SOURCES)
        file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/empty.cpp "")
        set(ARG_SOURCES ${CMAKE_CURRENT_BINARY_DIR}/empty.cpp)
    endif()
    add_library(${target} SHARED ${ARG_SOURCES})
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    plimsoll_unity(${target})
    add_library(plimsoll::${ARG_NAME} ALIAS ${target})
    target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/libcommon
                                    FILES ${ARG_HEADERS})
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/libcommon>
                                                $<INSTALL_INTERFACE:include/plimsoll>)
    target_link_libraries(${target} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} plimsoll_warnings)
    # No <target>_EXPORTS: a definition that a test lacks would make the shared precompiled header unusable there.
    set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON DEFINE_SYMBOL "")
    install(TARGETS ${target}
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
            FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/plimsoll COMPONENT development)
endfunction()

# plimsoll_torch_units(TARGET [REUSE OTHER]) marks a target whose units include torch headers: one precompiled header (made
# by the first such target, reused by the others) and no more compilers at once than memory has room for.
function(plimsoll_torch_units target)
    cmake_parse_arguments(ARG "" "REUSE" "" ${ARGN})
    set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE torch_pool)
    target_compile_options(${target} PRIVATE ${PLIMSOLL_PCH_OPTIONS})
    if(ARG_REUSE)
        # A precompiled header is bound to the flags it was made with: -fPIC of the library, not -fPIE of a program.
        set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
        target_compile_options(${target} PRIVATE -fPIC)
        target_precompile_headers(${target} REUSE_FROM ${ARG_REUSE})
    else()
        target_precompile_headers(${target} PRIVATE <ATen/core/Tensor.h>)
    endif()
endfunction()

# plimsoll_tool(NAME shard LINK plimsoll::io) builds tools/<NAME>/*.cpp into plimsoll-<NAME>; the target `tools` builds all.
add_custom_target(tools)
function(plimsoll_tool)
    cmake_parse_arguments(ARG "" "NAME" "LINK" ${ARGN})
    set(target plimsoll-${ARG_NAME})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/${ARG_NAME}/*.cpp)
    if(NOT sources)
        return()
    endif()
    add_executable(${target} ${sources})
    plimsoll_unity(${target})
    add_dependencies(tools ${target})
    target_link_libraries(${target} PRIVATE ${ARG_LINK} plimsoll_warnings)
    install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
endfunction()

# plimsoll_test(NAME base LABEL unit LINK plimsoll::base [TORCH] [TIMEOUT 120] [ENVIRONMENT A=b]) registers one GoogleTest
# binary <LABEL>_<NAME> of all *_test.cpp in the folder NAME below the calling one; TORCH where they include torch headers.
# The target tests_<LABEL> builds all of a label. Zero tests run is a failure (tests/support/test_main.cpp).
function(plimsoll_test)
    cmake_parse_arguments(ARG "TORCH" "NAME;LABEL;TIMEOUT" "LINK;ENVIRONMENT" ${ARGN})
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_NAME}/*.cpp
         ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_NAME}/*/*_test.cpp)
    if(NOT ARG_SOURCES)
        message(STATUS "no *_test.cpp in ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_NAME}")
        return()
    endif()
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 120)
    endif()
    set(target ${ARG_LABEL}_${ARG_NAME})
    add_executable(${target} ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/support/test_main.cpp)
    if(NOT ARG_TORCH)
        plimsoll_unity(${target})
    endif()
    if(NOT TARGET tests_${ARG_LABEL})
        add_custom_target(tests_${ARG_LABEL})
    endif()
    add_dependencies(tests_${ARG_LABEL} ${target})
    # What is tested lies in the libraries, optimised as they are installed; test bodies compile in half the time without.
    # (With a precompiled header of an optimising build, -O1 is the least that the compiler accepts.)
    target_compile_options(${target} PRIVATE $<IF:$<BOOL:${ARG_TORCH}>,-O1,-O0>)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${target} PRIVATE ${ARG_LINK} GTest::gtest plimsoll_warnings)
    target_compile_definitions(${target} PRIVATE
        PLIMSOLL_SOURCE_DIR="${PROJECT_SOURCE_DIR}" PLIMSOLL_BINARY_DIR="${PROJECT_BINARY_DIR}")
    if(ARG_TORCH)
        plimsoll_torch_units(${target} REUSE plimsoll_nn)
    endif()
    add_test(NAME ${target} COMMAND ${PLIMSOLL_TEST_LAUNCHER} $<TARGET_FILE:${target}>)
    set_tests_properties(${target} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
                         ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()
