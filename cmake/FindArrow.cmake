# Arrow C++ with Parquet: Arrow::parquet = libparquet + libarrow, from where the system has them or out of the pyarrow wheel.
#
# Looked for in Arrow_ROOT (cache or environment: a prefix, a pyarrow folder or a venv), in build/arrow, which
# scripts/deps.sh makes, then in the system. The wheel's libraries have no names without a version: they are linked as they are.

set(_arrow_roots ${Arrow_ROOT} $ENV{Arrow_ROOT} ${PROJECT_SOURCE_DIR}/build/arrow)
set(_arrow_hints)
foreach(root IN LISTS _arrow_roots)
    file(GLOB _in_venv ${root}/lib/python3*/site-packages/pyarrow)
    list(APPEND _arrow_hints ${root} ${_in_venv})
endforeach()

find_path(Arrow_INCLUDE_DIR parquet/api/reader.h HINTS ${_arrow_hints} PATH_SUFFIXES include)
if(Arrow_INCLUDE_DIR)
    get_filename_component(_arrow_prefix ${Arrow_INCLUDE_DIR} DIRECTORY)
    foreach(name arrow parquet)
        find_library(Arrow_${name}_LIBRARY ${name} HINTS ${_arrow_prefix} PATH_SUFFIXES lib)
        file(GLOB _versioned ${_arrow_prefix}/lib${name}.so.[0-9]*)
        if(_versioned AND NOT Arrow_${name}_LIBRARY)
            list(SORT _versioned)
            list(GET _versioned 0 _versioned)
            set(Arrow_${name}_LIBRARY ${_versioned} CACHE FILEPATH "Arrow's lib${name}" FORCE)
        endif()
    endforeach()
    file(STRINGS ${Arrow_INCLUDE_DIR}/arrow/util/config.h _arrow_version REGEX "define ARROW_VERSION_STRING")
    string(REGEX REPLACE ".*\"(.*)\".*" "\\1" Arrow_VERSION "${_arrow_version}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Arrow
    REQUIRED_VARS Arrow_parquet_LIBRARY Arrow_arrow_LIBRARY Arrow_INCLUDE_DIR VERSION_VAR Arrow_VERSION
    REASON_FAILURE_MESSAGE "make -f Makefile.local deps brings it, Arrow_ROOT names one, -DWITH_PARQUET=OFF builds without")

if(Arrow_FOUND AND NOT TARGET Arrow::parquet)
    get_filename_component(_arrow_libraries ${Arrow_arrow_LIBRARY} DIRECTORY)
    add_library(Arrow::parquet INTERFACE IMPORTED)
    target_include_directories(Arrow::parquet SYSTEM INTERFACE ${Arrow_INCLUDE_DIR})
    target_link_libraries(Arrow::parquet INTERFACE ${Arrow_parquet_LIBRARY} ${Arrow_arrow_LIBRARY})
    # As link options, since CMake drops folders inside the source tree from the run path of what is installed.
    target_link_options(Arrow::parquet INTERFACE "LINKER:-rpath,${_arrow_libraries}")
endif()
mark_as_advanced(Arrow_INCLUDE_DIR Arrow_arrow_LIBRARY Arrow_parquet_LIBRARY)
