# The serial C library of HDF5: HDF5::serial. Looked for in HDF5_ROOT and the usual places.
#
# FindHDF5 of CMake takes whatever wrapper compiler comes first, which may be an MPI build; that one is refused here, since
# it would drag MPI into every tool.

find_path(HDF5_INCLUDE_DIR hdf5.h HINTS ${HDF5_ROOT} $ENV{HDF5_ROOT} PATH_SUFFIXES include include/hdf5/serial hdf5/serial)
find_library(HDF5_LIBRARY NAMES hdf5_serial hdf5 HINTS ${HDF5_ROOT} $ENV{HDF5_ROOT} PATH_SUFFIXES lib lib64 hdf5/serial)

set(_hdf5_hint "install libhdf5-dev (Debian), or set HDF5_ROOT")
if(HDF5_INCLUDE_DIR)
    file(GLOB _hdf5_config ${HDF5_INCLUDE_DIR}/H5pubconf*.h)
    foreach(file IN LISTS _hdf5_config)
        file(STRINGS ${file} _version REGEX "define H5_VERSION ")
        if(_version MATCHES "\"([0-9]+\\.[0-9]+\\.[0-9]+)")
            set(HDF5Serial_VERSION ${CMAKE_MATCH_1})
        endif()
        file(STRINGS ${file} _parallel REGEX "define H5_HAVE_PARALLEL 1")
        if(_parallel)
            set(_hdf5_hint "HDF5 in ${HDF5_INCLUDE_DIR} is an MPI build; set HDF5_ROOT to a serial one")
            set(HDF5_LIBRARY HDF5_LIBRARY-NOTFOUND)
        endif()
    endforeach()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(HDF5Serial REQUIRED_VARS HDF5_LIBRARY HDF5_INCLUDE_DIR
                                  VERSION_VAR HDF5Serial_VERSION REASON_FAILURE_MESSAGE "${_hdf5_hint}")
if(HDF5Serial_FOUND AND NOT TARGET HDF5::serial)
    add_library(HDF5::serial UNKNOWN IMPORTED)
    set_target_properties(HDF5::serial PROPERTIES IMPORTED_LOCATION ${HDF5_LIBRARY}
                                                  INTERFACE_INCLUDE_DIRECTORIES ${HDF5_INCLUDE_DIR})
endif()
mark_as_advanced(HDF5_INCLUDE_DIR HDF5_LIBRARY)
