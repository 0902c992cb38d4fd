#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.hpp"
#include "io/file.hpp"
#include "io/token_formats/datatrove.hpp"
#include "io/token_formats/llmc.hpp"
#include "io/token_formats/mds.hpp"
#include "io/token_formats/token_files.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

namespace
{

using FormatIds = std::vector<std::uint32_t>;

std::string hex_text(const std::string& bytes)
{
    std::string hex;
    for (const char c : bytes) { hex += fmt::format("{:02x}", static_cast<unsigned char>(c)); }
    return hex;
}

class TokenFormatsTest : public ::testing::Test
{
  protected:
    static void write(DocumentWriter& writer, const std::vector<FormatIds>& documents,
                      const std::vector<std::vector<std::uint8_t>>& masks = {})
    {
        for (std::size_t i = 0; i < documents.size(); ++i)
        {
            TokenDocument document;
            document.ids = documents[i];
            if (!masks.empty()) { document.mask = masks[i]; }
            writer.add(document);
        }
        writer.finish();
    }

    static std::vector<FormatIds> read(DocumentReader& reader, std::vector<std::vector<std::uint8_t>>* masks = nullptr)
    {
        std::vector<FormatIds> all;
        TokenDocument document;
        while (reader.next(document))
        {
            all.push_back(document.ids);
            if (masks != nullptr) { masks->push_back(document.mask); }
        }
        return all;
    }

    template<class Body>
    std::string fault(const Body& body)
    {
        std::string message = testing::message_of(body);
        const std::string folder = dir_.path() + "/";
        for (std::size_t at = message.find(folder); at != std::string::npos; at = message.find(folder))
        {
            message.erase(at, folder.size());
        }
        return message;
    }

    template<class T>
    void patch(const std::string& name, std::int64_t offset, T value)
    {
        File file(dir_ / name, File::Mode::read_write);
        file.write_at(&value, sizeof(value), offset);
    }

    testing::TempDir dir_{testing::fast_directory()};
};

}  // namespace

TEST_F(TokenFormatsTest, LlmcHeadersAreTheGoldenBytes)
{
    LlmcWriter narrow(dir_ / "narrow", 50257, 50256, 100);
    write(narrow, {{1, 2, 3, 50256}, {50256}});
    const std::string bytes = read_text_file(dir_ / "narrow_000000.bin");
    EXPECT_EQ(bytes.size(), 1024u + 10);
    EXPECT_EQ(hex_text(bytes.substr(0, 16)), "88d83401010000000500000000000000");
    EXPECT_EQ(hex_text(bytes.substr(1024)), "50c401000200030050c4");

    LlmcWriter wide(dir_ / "wide", 128256, 128001, 100);
    write(wide, {{1, 2, 3, 4, 128001}});
    const std::string wide_bytes = read_text_file(dir_ / "wide_000000.bin");
    EXPECT_EQ(wide_bytes.size(), 1024u + 20);
    EXPECT_EQ(hex_text(wide_bytes.substr(0, 16)), "a1d93401070000000500000000000000");
}

TEST_F(TokenFormatsTest, LlmcRollsOverAndReadsAcrossFiles)
{
    const std::vector<FormatIds> documents = {{1, 2, 3, 9}, {9}, {4, 9}, {5, 6, 7, 8, 1, 2, 9}, {3, 9}};
    LlmcWriter writer(dir_ / "x", 10, 9, 3);
    write(writer, documents);
    EXPECT_EQ(list_directory(dir_.path()).size(), 6u);
    EXPECT_EQ(file_size(dir_ / "x_000004.bin"), 1024 + 6);
    EXPECT_EQ(file_size(dir_ / "x_000005.bin"), 1024 + 2);
    const auto reader = open_token_files(TokenFormat::llmc, {dir_.path()}, {9, {}});
    EXPECT_EQ(read(*reader), documents);
}

TEST_F(TokenFormatsTest, LlmcCountsWhatItCannotTellApartAndRefusesWhatHasNoEnd)
{
    LlmcWriter writer(dir_ / "x", 10, 9, 100);
    write(writer, {{1, 9, 2, 9}, {3, 9}});
    EXPECT_EQ(writer.num_ambiguous(), 1);
    LlmcWriter other(dir_ / "y", 10, 9, 100);
    EXPECT_EQ(fault(
                  [&] {
                      write(other, {{3, 9}, {1, 2}});
                  }),
              "document 1 does not end with the id 9, by which llm.c's files tell documents apart");
}

TEST_F(TokenFormatsTest, LlmcTokensBeforeTheFirstEndAreADocument)
{
    LlmcWriter writer(dir_ / "x", 10, 9, 100);
    write(writer, {{1, 2, 9}, {3, 9}});
    LlmcDocuments by_other_end({dir_ / "x_000000.bin"}, 3);
    EXPECT_EQ(read(by_other_end), (std::vector<FormatIds>{{9, 1, 2, 9, 3}, {3}}));
    LlmcDocuments without({dir_ / "x_000000.bin"}, 7, 4);
    EXPECT_EQ(fault([&] { read(without); }), "x_000000.bin: no end-of-document id 7 within 4 tokens. is --eod right?");
}

TEST_F(TokenFormatsTest, LlmcFaultsHaveALine)
{
    const auto open = [&] { LlmcReader reader(dir_ / "x_000000.bin"); };
    LlmcWriter writer(dir_ / "x", 10, 9, 100);
    write(writer, {{1, 2, 9}});
    patch<std::int32_t>("x_000000.bin", 8, 4);
    EXPECT_EQ(fault(open), "x_000000.bin: 1030 bytes do not hold the 4 u16 tokens of its header (truncated file?)");
    patch<std::int32_t>("x_000000.bin", 4, 2);
    EXPECT_EQ(fault(open), "x_000000.bin: version 2 (this version reads 1 with the first number 20240520)");
    patch<std::int32_t>("x_000000.bin", 0, 20240522);
    EXPECT_EQ(fault(open), "x_000000.bin: questions of an evaluation, no token stream");
    patch<std::int32_t>("x_000000.bin", 0, 5);
    EXPECT_EQ(fault(open),
              "x_000000.bin: not a token file of llm.c's (its first number is 5, not 20240520 or 20240801)");
    patch<std::int32_t>("x_000000.bin", 0, 20240520);
    std::filesystem::resize_file(dir_ / "x_000000.bin", 1000);
    EXPECT_EQ(fault(open), "x_000000.bin: truncated file (1000 bytes, its header has 1024)");
}

TEST_F(TokenFormatsTest, LlmcWindowBehindTwoGiBIsExact)
{
    // 2^31 - 1 u32 tokens in a sparse file of 8 GiB: the last ones are where they should be.
    const std::string path = dir_ / "big.bin";
    {
        File file(path, File::Mode::create);
        const std::int32_t head[3] = {20240801, 7, 2147483647};
        file.write_at(head, 12, 0);
        const std::uint32_t last[2] = {70001, 70002};
        file.write_at(last, 8, 1024 + 4 * (2147483647ll - 2));
    }
    const LlmcReader reader(path);
    std::vector<std::uint32_t> tokens(3);
    reader.read(2147483647ll - 3, 3, tokens.data());
    EXPECT_EQ(tokens, (FormatIds{0, 70001, 70002}));
}

TEST_F(TokenFormatsTest, DatatroveFilesAreTheGoldenBytes)
{
    DatatroveWriter writer(dir_ / "x", 257, "bytes", true);
    write(writer, {{1, 2, 3}, {4, 5}}, {{0, 1, 1}, {1, 0}});
    EXPECT_EQ(hex_text(read_text_file(dir_ / "x.ds")), "01000200030004000500");
    EXPECT_EQ(hex_text(read_text_file(dir_ / "x.ds.index")), "03000000000000000500000000000000");
    EXPECT_EQ(read_text_file(dir_ / "x.ds.metadata"), "bytes|2\n5\n5.00 T");
    EXPECT_EQ(hex_text(read_text_file(dir_ / "x.ds.loss")), "0001010100");
    DatatroveDocuments reader({dir_ / "x.ds"});
    std::vector<std::vector<std::uint8_t>> masks;
    EXPECT_EQ(read(reader, &masks), (std::vector<FormatIds>{{1, 2, 3}, {4, 5}}));
    EXPECT_EQ(masks, (std::vector<std::vector<std::uint8_t>>{{0, 1, 1}, {1, 0}}));
}

TEST_F(TokenFormatsTest, DatatroveAmountsHaveThreeDigits)
{
    EXPECT_EQ(datatrove_amount(0), "0.00 T");
    EXPECT_EQ(datatrove_amount(4090), "4.09 kT");
    EXPECT_EQ(datatrove_amount(123456), "123 kT");
    EXPECT_EQ(datatrove_amount(12'345'678'901), "12.3 GT");
}

TEST_F(TokenFormatsTest, DatatroveWidthIsTheVocabularysAndIsFoundOutFromTheSize)
{
    DatatroveWriter writer(dir_ / "x", 65537, "t", false);
    write(writer, {{65536}, {}, {1, 2}});
    const DatatroveReader reader(dir_ / "x.ds");
    EXPECT_EQ(reader.dtype(), Dtype::u32);
    EXPECT_EQ(reader.tokenizer(), "t");
    DatatroveDocuments documents({dir_ / "x.ds", dir_ / "x.ds"});
    EXPECT_EQ(read(documents), (std::vector<FormatIds>{{65536}, {}, {1, 2}, {65536}, {}, {1, 2}}));
}

TEST_F(TokenFormatsTest, DatatroveFaultsHaveALine)
{
    const auto fresh = [&]
    {
        DatatroveWriter writer(dir_ / "x", 257, "bytes", true);
        write(writer, {{1, 2, 3}, {4, 5}});
    };
    const auto open = [&]
    {
        DatatroveDocuments reader({dir_ / "x.ds"});
        read(reader);
    };
    fresh();
    EXPECT_EQ(fault(open), "");
    std::filesystem::resize_file(dir_ / "x.ds", 8);
    EXPECT_EQ(fault(open), "x.ds: 8 bytes are neither 2 nor 4 for each of the 5 tokens of its index (truncated file?)");
    fresh();
    std::filesystem::resize_file(dir_ / "x.ds.index", 12);
    EXPECT_EQ(fault(open), "x.ds.index: 12 bytes are no whole number of document ends (8 bytes each)");
    fresh();
    patch<std::uint64_t>("x.ds.index", 0, 6);
    EXPECT_EQ(fault(open), "x.ds.index: document 0 ends at token 6 (the one before at 0, there are 5)");
    fresh();
    std::filesystem::resize_file(dir_ / "x.ds.loss", 4);
    EXPECT_EQ(fault(open), "x.ds.loss: 4 bytes for 5 tokens");
    fresh();
    patch<std::uint8_t>("x.ds.loss", 2, 7);
    EXPECT_EQ(fault(open), "x.ds.loss: entry 2 is 7, not 0 or 1");
    fresh();
    write_file(dir_ / "x.ds.metadata", "bytes|2\n6\n6 T");
    EXPECT_EQ(fault(open), "x.ds.metadata: says '6' tokens, the index has 5");
    write_file(dir_ / "x.ds.metadata", "bytes|4\n5\n5 T");
    EXPECT_EQ(fault(open), "x.ds.metadata: says '4' bytes for a token, the size of the file 2");
}

TEST_F(TokenFormatsTest, MdsShardIsTheGoldenBytes)
{
    MdsWriter writer(dir_ / "x", 257, false);
    write(writer, {{1, 2, 3}, {256}});
    const std::string config =
        R"({"column_encodings": ["ndarray:uint16"], "column_names": ["tokens"], "column_sizes": [null], )"
        R"("compression": null, "format": "mds", "hashes": [], "size_limit": 67108864, "version": 2})";
    const std::string shard = read_text_file(dir_ / "x/shard.00000.mds");
    // Two samples from byte 16 + 182 = 0xc6 on; each: size of its one column, one dimension in u8 (04), that, the ids.
    ASSERT_EQ(config.size(), 182u);
    EXPECT_EQ(hex_text(shard.substr(0, 16)), "02000000"
                                             "c6000000"
                                             "d2000000"
                                             "da000000");
    EXPECT_EQ(shard.substr(16, 182), config);
    EXPECT_EQ(hex_text(shard.substr(198)), "08000000"
                                           "0403"
                                           "010002000300"
                                           "04000000"
                                           "0401"
                                           "0001");
    EXPECT_EQ(read_text_file(dir_ / "x/index.json"),
              R"({"shards": [{"column_encodings": ["ndarray:uint16"], "column_names": ["tokens"], )"
              R"("column_sizes": [null], "compression": null, "format": "mds", "hashes": [], "raw_data": )"
              R"({"basename": "shard.00000.mds", "bytes": 218, "hashes": {}}, "samples": 2, "size_limit": 67108864, )"
              R"("version": 2, "zip_data": null}], "version": 2})");
    EXPECT_EQ(list_directory(dir_.path()), (std::vector<std::string>{"x"}));
}

TEST_F(TokenFormatsTest, MdsKeepsMasksAndCutsShards)
{
    std::vector<FormatIds> documents;
    std::vector<std::vector<std::uint8_t>> masks;
    for (std::uint32_t i = 1; i < 60; ++i)
    {
        FormatIds ids(i * 7);
        std::vector<std::uint8_t> mask(ids.size());
        for (std::uint32_t k = 0; k < ids.size(); ++k)
        {
            ids[k] = (i * 1000 + k * 31) % 70000;
            mask[k] = static_cast<std::uint8_t>((i + k) % 3 == 0);
        }
        documents.push_back(ids);
        masks.push_back(mask);
    }
    MdsWriter writer(dir_ / "x", 70000, true, 4096);
    write(writer, documents, masks);
    const std::vector<MdsShard> shards = read_mds_index(dir_ / "x");
    EXPECT_GT(shards.size(), 5u);
    for (const MdsShard& shard : shards) { EXPECT_LE(shard.bytes, 4096) << shard.path; }
    MdsDocuments reader(dir_ / "x");
    EXPECT_TRUE(reader.has_loss_mask());
    std::vector<std::vector<std::uint8_t>> found;
    EXPECT_EQ(read(reader, &found), documents);
    EXPECT_EQ(found, masks);
}

TEST_F(TokenFormatsTest, MdsWithoutFinishOrOverADirectoryLeavesNothing)
{
    {
        MdsWriter writer(dir_ / "x", 257, false);
        TokenDocument document;
        document.ids = {1};
        writer.add(document);
    }
    EXPECT_TRUE(list_directory(dir_.path()).empty());
    make_directories(dir_ / "x");
    EXPECT_EQ(fault([&] { MdsWriter writer(dir_ / "x", 257, false); }),
              fault([&] { throw UsageError("'" + (dir_ / "x") + "' exists. choose another --out or remove it"); }));
}

TEST_F(TokenFormatsTest, MdsReadsBytesColumnsAndRefusesOtherThings)
{
    make_directories(dir_ / "x");
    const auto index = [&](const std::string& encoding, std::int64_t bytes, const std::string& zip = "null")
    {
        write_file(
            dir_ / "x/index.json",
            fmt::format(R"({{"version": 2, "shards": [{{"column_encodings": ["{}"], "column_names": ["tokens"], )"
                        R"("column_sizes": [null], "compression": "zstd", "format": "mds", "hashes": [], )"
                        R"("raw_data": {{"basename": "s.mds", "bytes": {}, "hashes": {{}}}}, "samples": 1, )"
                        R"("size_limit": 1, "version": 2, "zip_data": {}}}]}})",
                        encoding, bytes, zip));
    };
    const std::string shard("\x01\0\0\0\x0c\0\0\0\x20\0\0\0\x10\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0", 32);
    index("bytes", 32, R"({"basename": "s.mds.zstd"})");
    const auto open = [&]
    {
        MdsDocuments reader(dir_ / "x");
        read(reader);
    };
    EXPECT_EQ(fault(open), "x/index.json: 's.mds' is there compressed only (zstd). decompress the shards first");
    index("bytes", 32);
    EXPECT_EQ(fault(open), "x/s.mds: is missing (the index lists it)");
    write_file(dir_ / "x/s.mds", shard);
    EXPECT_EQ(fault(open),
              "x/s.mds: column 'tokens' is bytes, which does not say how wide an id is. give --token-bytes 2, 4 or 8");
    MdsDocuments wide(dir_ / "x", {"tokens", 8});
    EXPECT_EQ(read(wide), (std::vector<FormatIds>{{7, 8}}));
    EXPECT_EQ(fault(
                  [&] {
                      MdsDocuments reader(dir_ / "x", {"ids", 8});
                  }),
              "x/s.mds: no column 'ids' (columns: tokens). name it with --column");
    index("str", 32);
    EXPECT_EQ(fault(open), "x/s.mds: column 'tokens' is str, no list of ids");
    index("bytes", 31);
    EXPECT_EQ(fault(open), "x/s.mds: 32 bytes, the index says 31 (truncated file?)");
    index("ndarray:uint16", 32);
    EXPECT_EQ(fault(open), "x/s.mds: sample 0: column 'tokens' is no list in the encoding ndarray:uint16");
    index("ndarray:int64:2", 32);
    MdsDocuments shaped(dir_ / "x");
    EXPECT_EQ(read(shaped), (std::vector<FormatIds>{{7, 8}}));
    write_file(dir_ / "x/index.json", "{");
    EXPECT_EQ(fault(open), "x/index.json: not valid json (at byte 2)");
    write_file(dir_ / "x/index.json", R"({"version": 2})");
    EXPECT_EQ(fault(open), "x/index.json: a field of MDS is missing or has the wrong type");
}

TEST_F(TokenFormatsTest, APathTellsItsFormat)
{
    write_file(dir_ / "a.bin", "");
    EXPECT_EQ(token_format_of(dir_ / "a.bin"), TokenFormat::llmc);
    write_file(dir_ / "a.idx", "");
    EXPECT_EQ(token_format_of(dir_ / "a.bin"), TokenFormat::megatron);
    EXPECT_EQ(token_format_of(dir_ / "a.idx"), TokenFormat::megatron);
    EXPECT_EQ(token_format_of(dir_ / "a"), TokenFormat::megatron);
    EXPECT_EQ(token_format_of(dir_ / "a.ds"), TokenFormat::datatrove);
    EXPECT_EQ(token_format_of(dir_.path()), std::nullopt);
    EXPECT_EQ(token_format_of(dir_ / "a.h5"), std::nullopt);
    write_file(dir_ / "index.json", "");
    EXPECT_EQ(token_format_of(dir_.path()), TokenFormat::mds);
    testing::expect_error<UsageError>([] { parse_token_format("tar"); },
                                      "unknown token format 'tar'. known: megatron llmc ds mds");
}

}  // namespace plimsoll
