#include <gtest/gtest.h>

#include "base/error.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "support/expect_error.hpp"

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
    testing::expect_error<ConfigError>(
        [] { make_tokenizer("byte"); },
        "unknown tokenizer 'byte'. known: bytes, or a file that ends in .json, .tiktoken or .model");
    testing::expect_error<ConfigError>([] { make_tokenizer("x.json:pattern=llama3"); },
                                       "tokenizer 'x.json' has its pattern in the file. leave out :pattern=llama3");
    testing::expect_error<ConfigError>([] { make_tokenizer("x.tiktoken:pattern="); },
                                       "tokenizer 'x.tiktoken:pattern=' names no pattern");
    TokenizerOptions options;
    options.eod = "</s>";
    testing::expect_error<ConfigError>([&] { make_tokenizer("bytes", options); },
                                       "tokenizer 'bytes' has its own end of a document (256), not '</s>'");
    EXPECT_THROW(make_tokenizer("no/such/tokenizer.json"), ConfigError);
}

}  // namespace plimsoll
