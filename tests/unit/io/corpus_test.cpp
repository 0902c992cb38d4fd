#include <gtest/gtest.h>

#include <fstream>

#include "base/error.hpp"
#include "io/corpus_part.hpp"
#include "io/corpus_pipeline.hpp"
#include "io/corpus_statistics.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

TEST(LengthHistogram, QuantilesAreWithinThreePercentAndExactBelowSixtyFour)
{
    LengthHistogram lengths;
    EXPECT_EQ(lengths.quantile(0.5), 0);
    for (std::int64_t length = 1; length <= 1'000'00; ++length) { lengths.add(length); }
    for (const double share : {0.01, 0.5, 0.99})
    {
        const double exact = share * 100'000;
        EXPECT_LE(static_cast<double>(lengths.quantile(share)), exact);
        EXPECT_GT(static_cast<double>(lengths.quantile(share)), exact * 0.968);
    }
    LengthHistogram small;
    for (const std::int64_t length : {1, 2, 3, 63}) { small.add(length); }
    EXPECT_EQ(small.quantile(0.25), 1);
    EXPECT_EQ(small.quantile(0.5), 2);
    EXPECT_EQ(small.quantile(1), 63);
    EXPECT_LT(lengths.counts().size(), 600U) << "bounded";
}

TEST(CorpusPart, PartsHoldEachFileOrRangeOnceAndNothingElse)
{
    std::vector<InputFile> files(5);
    for (std::size_t i = 0; i < files.size(); ++i)
    {
        files[i].path = std::string(1, static_cast<char>('a' + i));
        files[i].bytes = static_cast<std::int64_t>(i) * 1000;  // the first is empty
        files[i].format = TextFormat::jsonl;
    }
    files[2].compression = Compression::zstd;
    for (const std::int64_t num : {1, 2, 3, 10, 100})
    {
        std::vector<std::int64_t> covered(files.size(), 0);
        std::int64_t whole = 0;
        for (std::int64_t part = 0; part < num; ++part)
        {
            for (const InputFile& file : files_of_part(files, DocumentUnit::file, part, num))
            {
                const auto index = static_cast<std::size_t>(file.path[0] - 'a');
                if (file.compression == Compression::zstd) { ++whole; }
                else
                {
                    EXPECT_EQ(file.begin, covered[index]) << "ranges meet";
                    covered[index] = file.end;
                }
            }
        }
        EXPECT_EQ(whole, 1);
        EXPECT_EQ(covered, (std::vector<std::int64_t>{0, 1000, 0, 3000, 4000}));
    }
}

TEST(CorpusPipeline, BlocksComeInOrderAndCanBeLeftAtAnyTime)
{
    plimsoll::testing::TempDir dir;
    {
        std::ofstream out(dir / "a.txt");
        for (int i = 0; i < 2000; ++i) { out << i << "\n"; }
    }
    const auto tokenizer = make_tokenizer("bytes");
    CorpusPipeline::Options options;
    options.text.document = DocumentUnit::line;
    options.text.block_bytes = 50;
    options.threads = 4;
    const std::vector<InputFile> files = find_input_files({dir / "a.txt"});
    std::string text;
    {
        CorpusPipeline pipeline(files, *tokenizer, options, {});
        while (const EncodedBlock* block = pipeline.next())
        {
            text +=
                tokenizer->decode(block->documents.ids.data(), static_cast<std::int64_t>(block->documents.ids.size()));
        }
    }
    std::string expected;
    for (int i = 0; i < 2000; ++i) { expected += std::to_string(i); }
    EXPECT_EQ(text, expected);
    for (int blocks = 0; blocks < 5; ++blocks)
    {
        CorpusPipeline pipeline(files, *tokenizer, options, {});
        for (int i = 0; i < blocks; ++i) { ASSERT_NE(pipeline.next(), nullptr); }
    }
}

}  // namespace plimsoll
