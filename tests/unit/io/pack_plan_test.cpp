#include "io/pack_plan.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/rng.hpp"
#include "io/token_order.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

namespace
{

PackPlan plan_of(const std::vector<std::int64_t>& lengths, std::int64_t seq_len)
{
    return PackPlan(seq_len,
                    [&](const std::function<void(std::int64_t)>& take)
                    {
                        for (const std::int64_t length : lengths) { take(length); }
                    });
}

}  // namespace

TEST(PackPlan, IsThatOfTheSecondImplementation)
{
    std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/unit/base/golden/data_order.json");
    const nlohmann::json golden = nlohmann::json::parse(file);
    for (const nlohmann::json& row : golden.at("packing"))
    {
        const PackPlan plan = plan_of(row.at("lengths").get<std::vector<std::int64_t>>(), row.at("seq_len"));
        ASSERT_EQ(plan.num_samples(), static_cast<std::int64_t>(row.at("samples").size()));
        for (std::int64_t s = 0; s < plan.num_samples(); ++s)
        {
            nlohmann::json pieces = nlohmann::json::array();
            for (const PackPiece& piece : plan.pieces(s)) { pieces.push_back({piece.begin, piece.length}); }
            EXPECT_EQ(pieces, row["samples"][static_cast<std::size_t>(s)]) << s;
        }
    }
}

TEST(PackPlan, EveryTokenIsPredictedOnceAndOnlyLongDocumentsAreCut)
{
    const CounterRng rng(4, RngPurpose::test);
    std::vector<std::int64_t> lengths;
    std::int64_t total = 0;
    for (std::uint64_t i = 0; i < 20'000; ++i)
    {
        lengths.push_back(static_cast<std::int64_t>(1 + rng.bits(i) % (i % 50 == 0 ? 5000 : 400)));
        total += lengths.back();
    }
    constexpr std::int64_t seq_len = 512;
    const PackPlan plan = plan_of(lengths, seq_len);
    std::vector<int> predicted(static_cast<std::size_t>(total));
    std::int64_t labels = 0;
    for (std::int64_t s = 0; s < plan.num_samples(); ++s)
    {
        std::int64_t size = 0;
        for (const PackPiece& piece : plan.pieces(s))
        {
            size += piece.length;
            labels += piece.length - 1;
            for (std::int64_t t = 1; t < piece.length; ++t) { ++predicted[static_cast<std::size_t>(piece.begin + t)]; }
        }
        ASSERT_LE(size, seq_len + 1);
    }
    EXPECT_EQ(labels, plan.num_labels());
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths)
    {
        EXPECT_EQ(predicted[static_cast<std::size_t>(begin)], 0);
        for (std::int64_t t = 1; t < length; ++t) { ASSERT_EQ(predicted[static_cast<std::size_t>(begin + t)], 1); }
        begin += length;
    }
    EXPECT_GT(static_cast<double>(labels) / static_cast<double>(plan.num_samples() * seq_len), 0.98);
}

TEST(PackPlan, PlacesBeyondFourGibitokensAreKept)
{
    const PackPlan plan = plan_of({3, (std::int64_t{1} << 33) - 3, 7}, std::int64_t{1} << 20);
    std::set<std::int64_t> ends;
    for (std::int64_t s = 0; s < plan.num_samples(); ++s)
    {
        for (const PackPiece& piece : plan.pieces(s))
        {
            if (piece.ends_document) { ends.insert(piece.begin + piece.length); }
        }
    }
    EXPECT_EQ(ends, (std::set<std::int64_t>{3, std::int64_t{1} << 33, (std::int64_t{1} << 33) + 7}));
}

TEST(PackPlan, LabelsNeverCrossDocuments)
{
    const plimsoll::testing::TempDir dir;
    std::vector<std::string> paths = {dir / "a.h5", dir / "b.h5"};
    std::uint32_t next = 0;
    std::vector<bool> is_first(2000);
    for (const std::string& path : paths)
    {
        TokenShardWriter writer(path, 2000, "numbers", "f00d");
        for (const std::int64_t size : {7, 1, 30, 12, 3, 90, 2, 5})
        {
            std::vector<std::uint32_t> ids(static_cast<std::size_t>(size));
            is_first[next] = true;
            for (std::uint32_t& id : ids) { id = next++; }
            writer.add_document(ids.data(), size, size);
        }
        writer.finish();
    }
    const TokenSource source(paths);
    OrderSettings settings;
    settings.seq_len = 31;
    settings.best_fit = true;
    const TokenOrder order({{"", &source, 1.0}}, settings);
    TokenBatch batch;
    order.read(0, order.num_samples(), batch);
    std::vector<int> counted(next);
    for (std::size_t i = 0; i < batch.labels.size(); ++i)
    {
        if (batch.mask[i] == 0) { continue; }
        ASSERT_EQ(batch.labels[i], batch.inputs[i] + 1) << "both of one document";
        ++counted[static_cast<std::size_t>(batch.labels[i])];
    }
    for (std::size_t t = 0; t < counted.size(); ++t) { EXPECT_EQ(counted[t], is_first[t] ? 0 : 1) << t; }
    EXPECT_EQ(batch.num_valid, 2 * (150 - 8));
    EXPECT_NEAR(order.filled(), static_cast<double>(batch.num_valid) / static_cast<double>(order.num_samples() * 31),
                1e-12);
    EXPECT_EQ(order.plan_fields()[3], "packing best-fit-v1");
}

}  // namespace plimsoll
