#include "io/tokenizer/unicode_normalize.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace plimsoll
{

namespace
{

std::string normal_form(std::string_view text, NormalForm form)
{
    std::string buffer;
    return std::string(normalized(text, form, buffer));
}

}  // namespace

// Cases of UAX 15, tables 3 to 8 and figures 3 to 6.
TEST(UnicodeNormalize, HasTheFormsOfTheStandard)
{
    const struct
    {
        const char *text, *nfc, *nfd, *nfkc, *nfkd;
    } cases[] = {
        {"", "", "", "", ""},
        {"\u212B", "\u00C5", "A\u030A", "\u00C5", "A\u030A"},
        {"\u2126", "\u03A9", "\u03A9", "\u03A9", "\u03A9"},
        {"\u00C5", "\u00C5", "A\u030A", "\u00C5", "A\u030A"},
        {"\u1E69", "\u1E69", "s\u0323\u0307", "\u1E69", "s\u0323\u0307"},
        {"\u1E0B\u0323", "\u1E0D\u0307", "d\u0323\u0307", "\u1E0D\u0307", "d\u0323\u0307"},
        {"q\u0307\u0323", "q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307"},
        {"\uFB01", "\uFB01", "\uFB01", "fi", "fi"},
        {"2\u2075", "2\u2075", "2\u2075", "25", "25"},
        {"\u1E9B\u0323", "\u1E9B\u0323", "\u017F\u0323\u0307", "\u1E69", "s\u0323\u0307"},
        {"\uD55C\uAE00", "\uD55C\uAE00", "\u1112\u1161\u11AB\u1100\u1173\u11AF", "\uD55C\uAE00",
         "\u1112\u1161\u11AB\u1100\u1173\u11AF"},
        {"\uAC00\u11A8", "\uAC01", "\u1100\u1161\u11A8", "\uAC01", "\u1100\u1161\u11A8"},
        {"\u0958", "\u0915\u093C", "\u0915\u093C", "\u0915\u093C", "\u0915\u093C"},
        {"e\u0301", "\u00E9", "e\u0301", "\u00E9", "e\u0301"},
    };
    for (const auto& c : cases)
    {
        EXPECT_EQ(normal_form(c.text, NormalForm::nfc), c.nfc) << c.text;
        EXPECT_EQ(normal_form(c.text, NormalForm::nfd), c.nfd) << c.text;
        EXPECT_EQ(normal_form(c.text, NormalForm::nfkc), c.nfkc) << c.text;
        EXPECT_EQ(normal_form(c.text, NormalForm::nfkd), c.nfkd) << c.text;
    }
}

TEST(UnicodeNormalize, NormalTextIsReturnedItselfWithoutACopy)
{
    std::string buffer = "untouched";
    for (const std::string_view text : {"plain", "caf\u00E9 \u4E2D\u6587 \uD55C\uAE00", ""})
    {
        EXPECT_EQ(normalized(text, NormalForm::nfc, buffer).data(), text.data());
    }
    EXPECT_EQ(buffer, "untouched");
}

TEST(UnicodeNormalize, MarksOfOneClassKeepTheirOrderInLongRuns)
{
    std::string text = "a", wanted = "a";
    for (int i = 0; i < 20000; ++i) { text += "\u0315\u0323"; }
    for (int i = 0; i < 20000; ++i) { wanted += "\u0323"; }
    for (int i = 0; i < 20000; ++i) { wanted += "\u0315"; }
    EXPECT_TRUE(normal_form(text, NormalForm::nfd) == wanted);
    // 0323 composes with the a once.
    EXPECT_EQ(normal_form(text, NormalForm::nfc).size(), wanted.size());
}

TEST(UnicodeNormalize, CharactersOfLaterVersionsStayAsTheyAre)
{
    EXPECT_EQ(normal_form("\u32FF", NormalForm::nfkc), "\u32FF") << "decomposes since Unicode 12.1";
    EXPECT_EQ(normalization_unicode_version(), "9.0.0");
}

TEST(UnicodeNormalize, IllFormedBytesPassThrough)
{
    const std::string text = std::string("e\xFF\u0301 \xC3") + "\u212B\xED\xA0\x80" + "\u0301\xE2\x84";
    const std::string wanted = std::string("e\xFF\u0301 \xC3") + "\u00C5\xED\xA0\x80" + "\u0301\xE2\x84";
    EXPECT_EQ(normal_form(text, NormalForm::nfc), wanted);
}

}  // namespace plimsoll
