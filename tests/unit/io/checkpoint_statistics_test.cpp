#include "io/checkpoint_statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "support/synthetic_checkpoint.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{
namespace
{

using namespace plimsoll::testing;

template<class Word>
double value_of(Dtype dtype, Word word)
{
    return element_value(&word, dtype, 0);
}

TEST(ElementValue, SmallFloatsAtTheirCorners)
{
    EXPECT_EQ(value_of<std::uint16_t>(Dtype::bf16, 0x3F80), 1.0);
    EXPECT_EQ(value_of<std::uint16_t>(Dtype::bf16, 0xC040), -3.0);
    EXPECT_EQ(value_of<std::uint16_t>(Dtype::bf16, 0x0001), std::ldexp(1.0, -133));
    EXPECT_TRUE(std::isnan(value_of<std::uint16_t>(Dtype::bf16, 0x7FC0)));
    EXPECT_EQ(value_of<std::uint16_t>(Dtype::bf16, 0xFF80), -std::numeric_limits<double>::infinity());
    EXPECT_EQ(value_of<std::uint16_t>(Dtype::f16, 0x7BFF), 65504.0);
    EXPECT_EQ(value_of<std::uint16_t>(Dtype::f16, 0x0001), std::ldexp(1.0, -24));
    // OCP 8-bit floating point specification (OFP8) 1.0, table 1.
    EXPECT_EQ(value_of<std::uint8_t>(Dtype::f8_e4m3, 0x7E), 448.0);
    EXPECT_TRUE(std::isnan(value_of<std::uint8_t>(Dtype::f8_e4m3, 0x7F)));
    EXPECT_EQ(value_of<std::uint8_t>(Dtype::f8_e4m3, 0x01), std::ldexp(1.0, -9));
    EXPECT_EQ(value_of<std::uint8_t>(Dtype::f8_e5m2, 0x7B), 57344.0);
    EXPECT_EQ(value_of<std::uint8_t>(Dtype::f8_e5m2, 0x7C), std::numeric_limits<double>::infinity());
    EXPECT_EQ(value_of<std::int32_t>(Dtype::i32, -5), -5.0);
    EXPECT_EQ(value_of<double>(Dtype::f64, 0.1), 0.1);
}

TensorStatistics statistics_of(const std::vector<float>& values, const std::vector<std::int64_t>& shape)
{
    const TempDir dir;
    const CheckpointTensor tensor = make_tensor(CheckpointState::model, "w", Dtype::f32, shape);
    CheckpointWriter writer(dir.path(), make_meta(1, {"w"}), {planned_whole(tensor)});
    writer.write(tensor.state, "w", checkpoint::whole_box(shape), values.data());
    const CheckpointReader reader(writer.commit().path);
    return tensor_statistics(reader, tensor);
}

TEST(TensorStatistics, OfNothingOneAndNotFinite)
{
    EXPECT_EQ(statistics_of({}, {0, 3}).elements, 0);
    const TensorStatistics one = statistics_of({-2}, {});
    EXPECT_EQ(one.mean, -2);
    EXPECT_EQ(one.rms, 2);
    EXPECT_EQ(one.deviation, 0);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const TensorStatistics mixed = statistics_of({nan, 0, 4, -INFINITY}, {4});
    EXPECT_EQ(mixed.not_finite, 2);
    EXPECT_EQ(mixed.zeros, 1);
    EXPECT_EQ(mixed.min, 0);
    EXPECT_EQ(mixed.max, 4);
    EXPECT_EQ(mixed.mean, 2);
    EXPECT_EQ(mixed.first.size(), 4U);
}

TEST(TensorStatistics, LargeOffsetKeepsTheDeviation)
{
    const TensorStatistics statistics = statistics_of({1e7F, 1e7F + 1, 1e7F + 2, 1e7F + 3}, {2, 2});
    EXPECT_EQ(statistics.mean, 1e7 + 1.5);
    EXPECT_NEAR(statistics.deviation, std::sqrt(1.25), 1e-12);
}

TEST(TensorStatistics, SeveralPiecesThatCutRows)
{
    std::vector<float> values(3 * 700001);
    for (std::size_t k = 0; k < values.size(); ++k) { values[k] = static_cast<float>(k % 3); }
    const TensorStatistics statistics = statistics_of(values, {3, 700001});
    EXPECT_EQ(statistics.elements, 2100003);
    EXPECT_EQ(statistics.zeros, 700001);
    EXPECT_NEAR(statistics.mean, 1.0, 1e-12);
    EXPECT_EQ(statistics.max, 2);
}

}  // namespace
}  // namespace plimsoll
