#include "io/fim.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.hpp"
#include "io/token_order.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

namespace
{

Fim all_documents(double rate = 1)
{
    Fim fim;
    fim.rate = rate;
    fim.prefix = 900;
    fim.suffix = 901;
    fim.middle = 902;
    return fim;
}

/// Documents of `sizes` tokens, numbered through; the last token of each is 999.
class FimOrder : public ::testing::Test
{
  protected:
    std::string write(const std::string& name, const std::vector<std::int64_t>& sizes, bool masked = false)
    {
        TokenShardWriter writer(dir_ / name, 1000, "numbers", "f00d", masked);
        for (const std::int64_t size : sizes)
        {
            std::vector<std::uint32_t> ids(static_cast<std::size_t>(size));
            for (std::uint32_t& id : ids) { id = next_++ % 900; }
            ids.back() = 999;
            const std::vector<std::uint8_t> mask(ids.size(), 1);
            writer.add_document(ids.data(), size, size, masked ? mask.data() : nullptr);
        }
        writer.finish();
        return dir_ / name;
    }

    std::uint32_t next_ = 0;
    plimsoll::testing::TempDir dir_;
};

}  // namespace

TEST(Fim, PiecesAreThoseOfTheSecondImplementation)
{
    std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/unit/base/golden/data_order.json");
    const nlohmann::json golden = nlohmann::json::parse(file);
    for (const nlohmann::json& row : golden.at("fim"))
    {
        Fim fim = all_documents(row.at("rate"));
        fim.spm_rate = row.at("spm_rate");
        FimPiece piece;
        piece.seed = std::stoull(row.at("seed").get<std::string>(), nullptr, 16);
        piece.document = row.at("document");
        piece.epoch = row.at("epoch");
        piece.sample = row.at("sample");
        const auto expected = row.at("tokens").get<std::vector<std::int64_t>>();
        std::vector<std::int64_t> tokens(expected.size());
        std::iota(tokens.begin(), tokens.end(), 0);
        fill_in_the_middle(fim, piece, tokens.data(), static_cast<std::int64_t>(tokens.size()));
        EXPECT_EQ(tokens, expected) << row;
    }
}

TEST(Fim, SharesAreThoseAskedForAndTheTextIsAllThere)
{
    Fim fim = all_documents(0.3);
    fim.spm_rate = 0.25;
    int chosen = 0, suffix_first = 0;
    for (std::int64_t document = 0; document < 4000; ++document)
    {
        std::vector<std::int64_t> tokens(30);
        std::iota(tokens.begin(), tokens.end(), 0);
        FimPiece piece;
        piece.seed = 5;
        piece.document = document;
        fill_in_the_middle(fim, piece, tokens.data(), 30);
        if (tokens[0] != 900)
        {
            EXPECT_TRUE(std::is_sorted(tokens.begin(), tokens.end()));
            continue;
        }
        ++chosen;
        suffix_first += tokens[1] == 901 ? 1 : 0;  // also a PSM piece with an empty prefix: 1 in 14
        std::sort(tokens.begin(), tokens.end());
        for (std::int64_t i = 0; i < 27; ++i) { ASSERT_EQ(tokens[static_cast<std::size_t>(i)], i); }
    }
    EXPECT_NEAR(chosen, 1200, 100);
    EXPECT_NEAR(suffix_first, chosen * (0.25 + 0.75 / 14), 60);
}

TEST(Fim, EveryEpochAndEverySampleHasCutsOfItsOwn)
{
    const auto arranged = [](std::int64_t epoch, std::int64_t sample)
    {
        std::vector<std::int64_t> tokens(300);
        std::iota(tokens.begin(), tokens.end(), 0);
        FimPiece piece;
        piece.document = 4;
        piece.epoch = epoch;
        piece.sample = sample;
        fill_in_the_middle(all_documents(), piece, tokens.data(), 300);
        return tokens;
    };
    EXPECT_EQ(arranged(0, 0), arranged(0, 0));
    EXPECT_NE(arranged(0, 0), arranged(1, 0));
    EXPECT_NE(arranged(0, 0), arranged(0, 1));
    EXPECT_EQ(arranged(0, 0)[1] == 901, arranged(0, 1)[1] == 901) << "one layout for a document";
}

TEST_F(FimOrder, PiecesOfDocumentsAreFoundAcrossShards)
{
    const TokenSource source({write("a.h5", {3, 1, 4}), write("b.h5", {2, 90})});
    const auto text = [&](std::int64_t begin, std::int64_t num)
    {
        std::string all;
        for (const DocumentPiece& p : source.pieces(begin, num))
        {
            all += fmt::format("{}:{}-{}{} ", p.document, p.begin, p.end, p.ends_here ? "." : "");
        }
        return all;
    };
    EXPECT_EQ(text(0, 8), "0:0-3. 1:3-4. 2:4-8. ");
    EXPECT_EQ(text(1, 1), "0:1-2 ");
    EXPECT_EQ(text(2, 5), "0:2-3. 1:3-4. 2:4-7 ");
    EXPECT_EQ(text(7, 50), "2:7-8. 3:8-10. 4:10-57 ");
    EXPECT_EQ(text(99, 1), "4:99-100. ");
    EXPECT_EQ(text(5, 0), "");
    EXPECT_EQ(source.pieces(0, 100).size(), 5u);
}

TEST_F(FimOrder, ASampleKeepsItsLengthAndTheEndsOfItsDocuments)
{
    const TokenSource source({write("a.h5", {40, 25, 70, 3, 62})});
    OrderSettings settings;
    settings.seq_len = 50;
    settings.seed = 3;
    const TokenOrder plain({{"", &source, 1.0}}, settings);
    settings.fim = all_documents();
    const TokenOrder order({{"", &source, 1.0}}, settings);
    TokenBatch before, after, again;
    plain.read(0, 6, before);
    order.read(0, 6, after);
    order.read(0, 6, again);
    EXPECT_EQ(after.inputs, again.inputs);
    EXPECT_NE(after.inputs, before.inputs);
    int marks = 0;
    for (std::size_t i = 0; i < before.inputs.size(); ++i)
    {
        EXPECT_EQ(after.inputs[i] == 999, before.inputs[i] == 999) << i;
        marks += after.inputs[i] >= 900 && after.inputs[i] < 999 ? 1 : 0;
        if ((i + 1) % 50 != 0)
        {
            EXPECT_EQ(after.labels[i], after.inputs[i + 1]) << "labels are the inputs, one further";
        }
    }
    EXPECT_GT(marks, 20);
    EXPECT_EQ(order.plan_fields()[3], "fim v1 1 0.5 900 901 902");
}

TEST_F(FimOrder, AMaskedSourceIsRefused)
{
    const TokenSource source({write("a.h5", {40, 25}, true)});
    OrderSettings settings;
    settings.seq_len = 5;
    settings.fim = all_documents();
    plimsoll::testing::expect_error<ConfigError>(
        [&] {
            TokenOrder({{"", &source, 1.0}}, settings);
        },
        "the data has a loss mask (fim would tear it from its tokens). leave fim-rate at 0");
}

}  // namespace plimsoll
