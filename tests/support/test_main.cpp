// GoogleTest main of all test binaries: a run in which no test ran is a failure.

#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv)
{
    ::testing::InitGoogleTest(&argc, argv);
    const int failed = RUN_ALL_TESTS();
    const bool listing = ::testing::GTEST_FLAG(list_tests);
    if (failed == 0 && !listing && ::testing::UnitTest::GetInstance()->test_to_run_count() == 0)
    {
        std::fprintf(stderr, "no test ran (filter '%s' matches none)\n",
                     ::testing::GTEST_FLAG(filter).c_str());
        return 1;
    }
    return failed;
}
