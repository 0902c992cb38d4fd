#include "base/signals.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text_file.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace plimsoll;
using plimsoll::testing::expect_error;
using plimsoll::testing::TempDir;

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

TEST(StopSignals, AnInterruptIsOneAndWhatALauncherPassesOnIsTheSame)
{
    const StopSignals signals(Usr1::untouched);
    ::raise(SIGINT);
    ::raise(SIGINT);
    ::raise(SIGTERM);
    EXPECT_EQ(signals.name(), "SIGINT");
}

TEST(StopSignals, ASecondOneEndsAtOnceWithLastWords)
{
    const TempDir dir;
    const std::string path = dir / "status.json";
    for (const std::string& text : {std::string("the end\n"), std::string(5000, 'x')})
    {
        std::ofstream(path) << "running\n";
        const pid_t child = ::fork();
        if (child == 0)
        {
            const StopSignals signals(Usr1::untouched);
            signals.set_last_words("", path, "older\n");
            signals.set_last_words("", path, text);
            ::raise(SIGUSR2);
            ::raise(SIGTERM);
            ::usleep(1'050'000);
            ::raise(SIGUSR2);
            ::raise(SIGINT);
            ::_exit(0);
        }
        int state = 0;
        ::waitpid(child, &state, 0);
        EXPECT_TRUE(WIFEXITED(state));
        EXPECT_EQ(WEXITSTATUS(state), 1);
        EXPECT_EQ(load_text(path, "status"), text.size() > 100 ? "running\n" : text) << "too long ones are left out";
    }
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
