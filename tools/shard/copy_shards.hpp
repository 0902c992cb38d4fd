#pragma once
/// What is common to the commands that make new files of shards.

#include "base/error.hpp"

namespace plimsoll
{

/// A damaged source is damaged at every restart: exit 93, as plimsoll-reshard does. What the user can mend is no FormatError.
template<class Body>
auto copying_shards(const Body& body)
{
    try
    {
        return body();
    }
    catch (FormatError& error)
    {
        error.set_exit_code(ExitCode::fatal);
        throw;
    }
}

}  // namespace plimsoll
