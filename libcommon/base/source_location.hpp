#pragma once
/// Where an error was raised; stands in for std::source_location, which Clang 14 lacks.

namespace plimsoll
{

struct SourceLocation
{
    const char* file = "";
    const char* function = "";
    int line = 0;

    static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                            const char* function = __builtin_FUNCTION(),
                                            int line = __builtin_LINE())
    {
        SourceLocation location;
        location.file = file;
        location.function = function;
        location.line = line;
        return location;
    }
};

}  // namespace plimsoll
