/// docs/run_file.md ends in a reference that is printed from the schema; PLIMSOLL_REGENERATE=1 prints it anew.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/text_file.hpp"
#include "layout/run_config.hpp"

TEST(RunFileReference, IsPrintedFromTheSchema)
{
    const std::string path = std::string(PLIMSOLL_SOURCE_DIR) + "/docs/run_file.md";
    const std::string marker = "<!-- printed from the schema -->\n";
    plimsoll::RunConfig config;
    plimsoll::OptionSet options;
    plimsoll::declare_run_config(options, config);
    const std::string text = plimsoll::load_text(path, "reference");
    const std::size_t at = text.find(marker);
    ASSERT_NE(at, std::string::npos);
    const std::string expected = text.substr(0, at) + marker + options.markdown();
    if (std::getenv("PLIMSOLL_REGENERATE") != nullptr) { plimsoll::replace_text(path, expected); }
    else { EXPECT_EQ(text, expected) << "run this test once with PLIMSOLL_REGENERATE=1"; }
}
