#include "base/signals.hpp"

#include <gtest/gtest.h>

#include <csignal>

#include "support/expect_error.hpp"

using namespace plimsoll;
using plimsoll::testing::expect_error;

namespace
{

void (*handler_of(int number))(int)
{
    struct sigaction action = {};
    ::sigaction(number, nullptr, &action);
    return action.sa_handler;
}

}  // namespace

TEST(StopSignals, TheFirstOneIsNamed)
{
    const StopSignals signals(Usr1::stops);
    EXPECT_FALSE(signals.requested());
    EXPECT_EQ(signals.name(), "");
    ::raise(SIGUSR2);
    ::raise(SIGTERM);
    EXPECT_TRUE(signals.requested());
    EXPECT_EQ(signals.name(), "SIGUSR2");
}

TEST(StopSignals, ANewOneStartsFresh)
{
    {
        const StopSignals signals(Usr1::stops);
        ::raise(SIGUSR1);
        EXPECT_EQ(signals.name(), "SIGUSR1");
    }
    const StopSignals signals(Usr1::stops);
    EXPECT_FALSE(signals.requested());
}

TEST(StopSignals, Usr1IsLeftAloneUnlessAskedFor)
{
    const auto before = handler_of(SIGUSR1);
    const StopSignals signals(Usr1::untouched);
    EXPECT_EQ(handler_of(SIGUSR1), before);
    EXPECT_NE(handler_of(SIGTERM), SIG_DFL);
}

TEST(StopSignals, HandlersAreRestored)
{
    const auto before = handler_of(SIGTERM);
    {
        const StopSignals signals(Usr1::stops);
        EXPECT_NE(handler_of(SIGTERM), before);
    }
    EXPECT_EQ(handler_of(SIGTERM), before);
}

TEST(StopSignals, ASecondOneIsAFault)
{
    const StopSignals signals(Usr1::untouched);
    expect_error<InternalError>([] { const StopSignals second(Usr1::untouched); }, "stop signals are installed twice");
}
