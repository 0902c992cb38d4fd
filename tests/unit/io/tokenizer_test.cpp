#include <gtest/gtest.h>

#include "base/error.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace plimsoll
{

TEST(BytesTokenizer, EveryByteIsItsOwnIdAndComesBack)
{
    const auto tokenizer = make_tokenizer("bytes");
    std::string text;
    for (int byte = 0; byte < 256; ++byte) { text.push_back(static_cast<char>(byte)); }
    std::vector<std::uint32_t> ids = {7};
    tokenizer->make_encoder()->encode(text, ids);
    ASSERT_EQ(ids.size(), 257U);
    EXPECT_EQ(ids[0], 7U) << "encode appends";
    for (std::uint32_t byte = 0; byte < 256; ++byte) { EXPECT_EQ(ids[byte + 1], byte); }
    EXPECT_EQ(tokenizer->decode(ids.data() + 1, 256), text);
}

TEST(BytesTokenizer, EndOfDocumentIsTheLastIdAndDecodesToNothing)
{
    const auto tokenizer = make_tokenizer("bytes");
    EXPECT_EQ(tokenizer->name(), "bytes");
    EXPECT_EQ(tokenizer->vocab(), 257);
    EXPECT_EQ(tokenizer->eod(), 256U);
    const std::uint32_t ids[] = {104, 105, 256};
    EXPECT_EQ(tokenizer->decode(ids, 3), "hi");
}

TEST(BytesTokenizer, EmptyTextHasNoIds)
{
    std::vector<std::uint32_t> ids;
    make_tokenizer("bytes")->make_encoder()->encode("", ids);
    EXPECT_TRUE(ids.empty());
}

TEST(BytesTokenizer, FingerprintIsFixedForEver)
{
    // sha256 of the sentence in tokenizer.cpp, computed with Python's hashlib.
    EXPECT_EQ(make_tokenizer("bytes")->fingerprint(),
              "314068a34107570dd113104c1dc2f3517546c524c7fd25cb34dd4295b7ae2b7e");
}

TEST(MakeTokenizer, RefusesWhatItCannotReadByName)
{
    try
    {
        make_tokenizer("models/tokenizer.json");
        FAIL();
    }
    catch (const ConfigError& error)
    {
        EXPECT_STREQ(error.what(),
                     "tokenizer 'models/tokenizer.json' is not available in this version (.json files cannot "
                     "be read yet). available: bytes");
    }
    EXPECT_THROW(make_tokenizer("cl100k_base.tiktoken"), ConfigError);
    EXPECT_THROW(make_tokenizer("spm.model"), ConfigError);
    try
    {
        make_tokenizer("byte");
        FAIL();
    }
    catch (const ConfigError& error)
    {
        EXPECT_STREQ(error.what(), "unknown tokenizer 'byte'. available: bytes");
    }
}

}  // namespace plimsoll
