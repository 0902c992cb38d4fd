#include "io/token_formats/megatron_tokens.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"
#include "io/token_formats/megatron.hpp"
#include "io/token_order.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

namespace
{

class MegatronTokensTest : public ::testing::Test
{
  protected:
    std::string write(const std::string& name, std::int64_t num, std::int64_t vocab = 50000)
    {
        MegatronWriter writer(dir_ / name, vocab);
        TokenDocument document;
        document.ids.resize(static_cast<std::size_t>(num));
        std::iota(document.ids.begin(), document.ids.end(), std::uint32_t{0});
        writer.add(document);
        writer.finish();
        return "megatron:" + (dir_ / name);
    }

    plimsoll::testing::TempDir dir_;
};

}  // namespace

TEST_F(MegatronTokensTest, PairsAreOneConcatenation)
{
    const TokenSource source({write("a", 40'000), write("b", 100)}, 50'000);
    EXPECT_EQ(source.num_tokens(), 40'100);
    EXPECT_EQ(source.vocab(), 50'000);
    EXPECT_EQ(source.fingerprint(), "");
    EXPECT_FALSE(source.has_loss_mask());
    std::vector<std::int64_t> tokens(4);
    std::vector<std::uint8_t> mask(4);
    source.read(39'998, 4, tokens.data(), mask.data());
    EXPECT_EQ(tokens, (std::vector<std::int64_t>{39'998, 39'999, 0, 1}));
    EXPECT_EQ(mask, (std::vector<std::uint8_t>{1, 1, 1, 1}));
    EXPECT_EQ(TokenOrder(source, 10, 1).num_samples(), 4009);
}

TEST_F(MegatronTokensTest, AnIdOutsideTheVocabularyIsNamedWhenRead)
{
    const std::string path = write("a", 40'000);
    File(dir_ / "a.bin", File::Mode::read_write)
        .write_at("\xff\xff", 2, 2 * 2000);  // between the stretches that a start looks at
    const TokenSource source({path}, 50'000);
    std::int64_t token = 0;
    source.read(1999, 1, &token, nullptr);
    EXPECT_EQ(token, 1999);
    plimsoll::testing::expect_error<FormatError>(
        [&] { source.read(2000, 1, &token, nullptr); },
        (dir_ / "a.bin") +
            ": token 2000 is 65535, not below the vocabulary of 50000 (vocab of its section, or the model's)");
    plimsoll::testing::expect_error<FormatError>(
        [&] { TokenSource({path}, 39'999); },
        (dir_ / "a.bin") +
            ": token 39999 is 39999, not below the vocabulary of 39999 (vocab of its section, or the model's)");
    plimsoll::testing::expect_error<ConfigError>([&] { TokenSource({path}); },
                                                 "'" + path +
                                                     "' does not say its vocabulary. set vocab in its section");
}

TEST_F(MegatronTokensTest, OtherTokensHaveAnotherPlan)
{
    const std::string path = write("a", 40'000);
    const std::string plan = TokenOrder(TokenSource({path}, 50'000), 10, 1).plan_hash();
    EXPECT_EQ(TokenOrder(TokenSource({path}, 50'000), 10, 1).plan_hash(), plan);
    File(dir_ / "a.bin", File::Mode::read_write).write_at("xx", 2, 2 * 39'000);
    EXPECT_NE(TokenOrder(TokenSource({path}, 50'000), 10, 1).plan_hash(), plan)
        << "in one of the stretches that are looked at";
}

}  // namespace plimsoll
