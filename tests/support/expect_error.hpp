#pragma once
/// The exact wording of an error, since a user reads it.

#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"

namespace plimsoll::testing
{

/// The text of the Error that `body` ends with; empty without one.
template<class Body>
std::string message_of(Body&& body)
{
    try
    {
        body();
    }
    catch (const Error& error)
    {
        return error.what();
    }
    return "";
}

/// Runs `body` and expects an ErrorType with exactly this text.
template<class ErrorType, class Body>
void expect_error(Body&& body, const std::string& text)
{
    try
    {
        body();
        ADD_FAILURE() << "no error, wanted: " << text;
    }
    catch (const ErrorType& error)
    {
        EXPECT_EQ(std::string(error.what()), text);
    }
    catch (const std::exception& error)
    {
        ADD_FAILURE() << "another type of error: " << error.what();
    }
}

}  // namespace plimsoll::testing
