# The build id (git describe) in build_id.hpp below the build folder, made at build time and touched only when it changes,
# so that a new commit recompiles the files that include it and nothing else.
#
# plimsoll_use_build_id(TARGET) lets a target include "build_id.hpp": PLIMSOLL_VERSION and PLIMSOLL_BUILD_ID.

set(_build_id_dir ${PROJECT_BINARY_DIR}/generated)
find_package(Git QUIET)
add_custom_target(plimsoll_build_id
    COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DGIT=${GIT_EXECUTABLE} -DVERSION=${PROJECT_VERSION}
            -DOUTPUT=${_build_id_dir}/build_id.hpp -P ${CMAKE_CURRENT_LIST_DIR}/write_build_id.cmake
    BYPRODUCTS ${_build_id_dir}/build_id.hpp
    COMMENT "")

function(plimsoll_use_build_id target)
    add_dependencies(${target} plimsoll_build_id)
    target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/generated)
endfunction()
