# Run at build time: cmake -DSOURCE_DIR= -DGIT= -DVERSION= -DOUTPUT= -P write_build_id.cmake
set(build_id "unknown")
if(GIT)
    execute_process(COMMAND ${GIT} -c safe.directory=* describe --always --dirty --abbrev=12
                    WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE
                    ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
        set(build_id ${described})
    endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#pragma once
/// Made at build time by cmake/write_build_id.cmake.

#define PLIMSOLL_VERSION "@VERSION@"
#define PLIMSOLL_BUILD_ID "@build_id@"
]])
