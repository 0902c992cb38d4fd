#pragma once
/// Errors whose exit code only the caller knows.

#include "base/error.hpp"

namespace plimsoll
{

/// Calls body() and returns what it does; an Error from it ends the tool with `code`, unless somebody catches it.
/// FormatError, fatal: what is damaged is damaged at every restart. IoError, usage: a file that the user named is his to mend.
template<class Error, class Body>
auto exit_as(ExitCode code, const Body& body)
{
    try
    {
        return body();
    }
    catch (Error& error)
    {
        error.set_exit_code(code);
        throw;
    }
}

}  // namespace plimsoll
