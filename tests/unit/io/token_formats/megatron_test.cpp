#include "io/token_formats/megatron.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "io/file.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

namespace
{

using MegatronIds = std::vector<std::uint32_t>;

std::string hex_of_file(const std::string& path)
{
    std::string hex;
    for (const char c : read_text_file(path)) { hex += fmt::format("{:02x}", static_cast<unsigned char>(c)); }
    return hex;
}

class MegatronTest : public ::testing::Test
{
  protected:
    void write(const std::vector<MegatronIds>& documents, std::int64_t vocab = 257,
               std::int64_t max_sequence_tokens = 2147483647)
    {
        MegatronWriter writer(prefix_, vocab, max_sequence_tokens);
        for (const MegatronIds& ids : documents)
        {
            TokenDocument document;
            document.ids = ids;
            writer.add(document);
        }
        writer.finish();
    }

    template<class T>
    void patch(const std::string& ending, std::int64_t offset, T value)
    {
        File file(prefix_ + ending, File::Mode::read_write);
        file.write_at(&value, sizeof(value), offset);
    }

    std::vector<MegatronIds> read_documents()
    {
        MegatronDocuments documents(prefix_);
        std::vector<MegatronIds> all;
        TokenDocument document;
        while (documents.next(document)) { all.push_back(document.ids); }
        return all;
    }

    std::string fault_of_opening()
    {
        return without_folder([&] { MegatronReader reader(prefix_); });
    }
    std::string fault_of_index()
    {
        return without_folder([&] { MegatronReader(prefix_).verify_index(); });
    }

    template<class Body>
    std::string without_folder(const Body& body)
    {
        std::string message = testing::message_of(body);
        for (std::size_t at = message.find(dir_.path() + "/"); at != std::string::npos;
             at = message.find(dir_.path() + "/"))
        {
            message.erase(at, dir_.path().size() + 1);
        }
        return message;
    }

    testing::TempDir dir_{testing::fast_directory()};
    std::string prefix_ = dir_ / "corpus";
};

}  // namespace

TEST_F(MegatronTest, WritesTheGoldenBytes)
{
    write({{1, 2, 3}, {4, 5}});
    EXPECT_EQ(hex_of_file(prefix_ + ".idx"),
              "4d4d4944494458000001000000000000000802000000000000000300000000000000030000000200000000000000000000000600"
              "000000000000000000000000000001000000000000000200000000000000");
    EXPECT_EQ(hex_of_file(prefix_ + ".bin"), "01000200030004000500");
}

TEST_F(MegatronTest, AnEmptyDocumentHasNoSequence)
{
    write({{1, 2, 3}, {}, {4}});
    // Lengths 3, 1; offsets 0, 6; documents 0, 1, 1, 2.
    EXPECT_EQ(hex_of_file(prefix_ + ".idx").substr(2 * 34),
              "0300000001000000"
              "00000000000000000600000000000000"
              "0000000000000000010000000000000001000000000000000200000000000000");
    EXPECT_EQ(file_size(prefix_ + ".idx"), 90);
    EXPECT_EQ(read_documents(), (std::vector<MegatronIds>{{1, 2, 3}, {}, {4}}));
    EXPECT_EQ(MegatronReader(prefix_).document_ends(), (std::vector<std::uint64_t>{3, 3, 4}));
}

TEST_F(MegatronTest, EmptyDocumentsAtBothEndsAndNoDocumentAtAll)
{
    write({{}, {7}, {}});
    EXPECT_EQ(read_documents(), (std::vector<MegatronIds>{{}, {7}, {}}));
    write({});
    EXPECT_EQ(MegatronReader(prefix_).num_documents(), 0);
    EXPECT_TRUE(read_documents().empty());
}

TEST_F(MegatronTest, OneVocabularyThresholdDecidesTheType)
{
    write({{65535}}, 65536);
    EXPECT_EQ(MegatronReader(prefix_).dtype(), Dtype::u16);
    EXPECT_EQ(hex_of_file(prefix_ + ".bin"), "ffff");
    write({{65535, 65536}}, 65537);
    EXPECT_EQ(MegatronReader(prefix_).dtype(), Dtype::i32);
    EXPECT_EQ(hex_of_file(prefix_ + ".bin"), "ffff000000000100");
    EXPECT_EQ(read_documents(), (std::vector<MegatronIds>{{65535, 65536}}));
    EXPECT_THROW(MegatronWriter(dir_ / "x", (1ll << 31) + 1), ConfigError);
}

TEST_F(MegatronTest, AnIdAboveTheVocabularyIsRefusedAndLeavesNothing)
{
    testing::expect_error<FormatError>(
        [&] {
            write({{1}, {2, 257}});
        },
        "token id 257 at position 1 of document 1 is not below the vocabulary of 257");
    EXPECT_TRUE(list_directory(dir_.path()).empty());
}

TEST_F(MegatronTest, ALongDocumentIsSeveralSequences)
{
    write({{1, 2, 3, 4, 5}, {6}}, 257, 2);
    const MegatronReader reader(prefix_);
    EXPECT_EQ(reader.num_sequences(), 4);
    EXPECT_EQ(reader.num_documents(), 2);
    EXPECT_EQ(reader.document_ends(), (std::vector<std::uint64_t>{5, 6}));
    EXPECT_EQ(read_documents(), (std::vector<MegatronIds>{{1, 2, 3, 4, 5}, {6}}));
}

TEST_F(MegatronTest, ReadsAnyRangeInPlace)
{
    std::vector<MegatronIds> documents;
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < 300; ++i)
    {
        MegatronIds ids(i % 7);
        for (std::uint32_t& id : ids) { id = next++ * 40503u % 70000u; }
        documents.push_back(ids);
    }
    write(documents, 70000);
    const MegatronReader reader(prefix_ + ".idx");
    EXPECT_EQ(reader.prefix(), prefix_);
    for (const std::int64_t begin : {0, 1, 500})
    {
        std::vector<std::int64_t> tokens(300);
        reader.read(begin, 300, tokens.data());
        for (std::int64_t i = 0; i < 300; ++i)
        {
            ASSERT_EQ(tokens[i], static_cast<std::uint32_t>(begin + i) * 40503u % 70000u);
        }
    }
    std::vector<std::uint64_t> some(5);
    reader.read_document_ends(100, 5, some.data());
    const std::vector<std::uint64_t> all = reader.document_ends();
    EXPECT_EQ(some, std::vector<std::uint64_t>(all.begin() + 100, all.begin() + 105));
    EXPECT_EQ(read_documents(), documents);
}

TEST_F(MegatronTest, ModesOfAMultimodalPairAreAllowedAndPassedOver)
{
    write({{1, 2, 3}, {4, 5}});
    patch<std::uint16_t>(".idx", 82, 0);
    const MegatronReader reader(prefix_);
    EXPECT_TRUE(reader.has_modes());
    EXPECT_EQ(reader.num_tokens(), 5);
}

TEST_F(MegatronTest, EachFaultHasALine)
{
    const auto fresh = [&] { write({{1, 2, 3}, {4, 5}}); };
    EXPECT_EQ(fault_of_opening(), "cannot open 'corpus.idx' (no such file or directory)");
    fresh();
    patch<char>(".idx", 0, 'X');
    EXPECT_EQ(fault_of_opening(), "corpus.idx: not an index of Megatron's (it does not start with MMIDIDX)");
    fresh();
    patch<std::uint64_t>(".idx", 9, 2);
    EXPECT_EQ(fault_of_opening(), "corpus.idx: index of version 2 (this version reads 1)");
    fresh();
    patch<std::uint8_t>(".idx", 17, 6);
    EXPECT_EQ(fault_of_opening(), "corpus.idx: elements of type f64 are no token ids (u8, u16, i32 and i64 are)");
    patch<std::uint8_t>(".idx", 17, 9);
    EXPECT_EQ(fault_of_opening(), "corpus.idx: element type code 9 (known: 1 to 8)");
    fresh();
    std::filesystem::resize_file(prefix_ + ".idx", 81);
    EXPECT_EQ(fault_of_opening(),
              "corpus.idx: 81 bytes do not hold the 2 sequences and 3 document boundaries of its header (truncated "
              "file?)");
    std::filesystem::resize_file(prefix_ + ".idx", 30);
    EXPECT_EQ(fault_of_opening(), "corpus.idx: truncated index (30 bytes, its header has 34)");
    fresh();
    patch<std::uint64_t>(".idx", 18, ~0ull);
    EXPECT_EQ(fault_of_opening(),
              "corpus.idx: 82 bytes do not hold the 18446744073709551615 sequences and 3 document boundaries of its "
              "header (truncated file?)");
    fresh();
    std::filesystem::resize_file(prefix_ + ".bin", 9);
    EXPECT_EQ(fault_of_opening(), "corpus.bin: 9 bytes are no whole number of u16 tokens");
    std::filesystem::resize_file(prefix_ + ".bin", 12);
    EXPECT_EQ(fault_of_opening(), "corpus.bin: 12 bytes, its index describes 10 (truncated file?)");
    fresh();
    patch<std::int64_t>(".idx", 42, 2);
    EXPECT_EQ(fault_of_opening(), "corpus.idx: sequence 0 starts at byte 2, not at 0");
    fresh();
    patch<std::int64_t>(".idx", 50, -6);
    EXPECT_EQ(fault_of_opening(),
              "corpus.idx: the last sequence has 2 tokens from byte -6 on (corpus.bin has 10 bytes)");
    fresh();
    patch<std::int64_t>(".idx", 58, 1);
    EXPECT_EQ(fault_of_opening(), "corpus.idx: the first document boundary is 1, not 0");
    fresh();
    patch<std::int64_t>(".idx", 74, 3);
    EXPECT_EQ(fault_of_opening(), "corpus.idx: the last document ends at sequence 3, there are 2");
}

TEST_F(MegatronTest, TheWholeIndexIsVerified)
{
    const auto fresh = [&] { write({{1, 2}, {3}, {4, 5}}); };
    fresh();
    EXPECT_EQ(fault_of_index(), "");
    patch<std::int32_t>(".idx", 34, -1);
    EXPECT_EQ(fault_of_index(), "corpus.idx: sequence 0 has -1 tokens");
    fresh();
    patch<std::int64_t>(".idx", 54, 2);
    EXPECT_EQ(fault_of_index(), "corpus.idx: sequence 1 starts at byte 2, the lengths before it add up to 4");
    fresh();
    patch<std::int64_t>(".idx", 78, 9);
    EXPECT_EQ(fault_of_index(), "corpus.idx: document 0 ends at sequence 9 (the one before at 0, there are 3)");
    fresh();
    patch<std::int64_t>(".idx", 86, 0);
    EXPECT_EQ(fault_of_index(), "corpus.idx: document 1 ends at sequence 0 (the one before at 1, there are 3)");
}

TEST_F(MegatronTest, TokensAreVerified)
{
    write({{1, 2}, {70000}}, 70001);
    MegatronReader(prefix_).verify(70001);
    MegatronReader(prefix_).verify();
    EXPECT_EQ(without_folder([&] { MegatronReader(prefix_).verify(70000); }),
              "corpus.bin: token 2 is 70000, not below the vocabulary of 70000");
    patch<std::int32_t>(".bin", 4, -2);
    EXPECT_EQ(without_folder([&] { MegatronReader(prefix_).verify(); }), "corpus.bin: token 1 is -2 (negative)");
}

TEST_F(MegatronTest, OffsetsAbove4GiBAreExact)
{
    // A sparse pair of 5 GiB of u16 tokens in three sequences of 2^30 - 1, 2^30 and 2^29 + 1 tokens.
    const std::vector<std::int32_t> lengths = {(1 << 30) - 1, 1 << 30, (1 << 29) + 1};
    AppendFile index(prefix_ + ".idx");
    const std::uint64_t version = 1, sequences = 3, boundaries = 4;
    const std::uint8_t code = 8;
    index.append("MMIDIDX\0", 9);
    index.append(&version, 8);
    index.append(&code, 1);
    index.append(&sequences, 8);
    index.append(&boundaries, 8);
    for (const std::int32_t length : lengths) { index.append(&length, 4); }
    std::int64_t pointer = 0;
    for (const std::int32_t length : lengths)
    {
        index.append(&pointer, 8);
        pointer += 2 * static_cast<std::int64_t>(length);
    }
    for (std::int64_t i = 0; i < 4; ++i) { index.append(&i, 8); }
    index.publish();
    {
        File bin(prefix_ + ".bin", File::Mode::create);
        const std::vector<std::uint16_t> last = {11, 12, 13};
        bin.write_at(last.data(), 6, pointer - 6);
        const std::uint16_t middle = 77;
        bin.write_at(&middle, 2, 2 * ((1ll << 31) - 1));
    }
    const MegatronReader reader(prefix_);
    EXPECT_EQ(reader.num_tokens(), (1ll << 31) + (1ll << 29));
    reader.verify_index();
    EXPECT_EQ(reader.document_ends(),
              (std::vector<std::uint64_t>{(1u << 30) - 1, (1u << 31) - 1, (1ull << 31) + (1ull << 29)}));
    std::vector<std::int64_t> tokens(4);
    reader.read(reader.num_tokens() - 4, 4, tokens.data());
    EXPECT_EQ(tokens, (std::vector<std::int64_t>{0, 11, 12, 13}));
    reader.read((1ll << 31) - 2, 3, tokens.data());
    EXPECT_EQ(tokens[1], 77);
}

TEST_F(MegatronTest, AHundredBillionTokensStayIn64Bits)
{
    // Megatron-LM 1672, 1673: pointers of 32 bits. 100 sequences of 10^9 tokens in a sparse file of 200 GB.
    constexpr std::int64_t num = 100, length = 1'000'000'000;
    AppendFile index(prefix_ + ".idx");
    const std::uint64_t head[] = {1, num, num + 1};
    const std::uint8_t code = 8;
    index.append("MMIDIDX\0", 9);
    index.append(head, 8);
    index.append(&code, 1);
    index.append(head + 1, 16);
    const auto each = static_cast<std::int32_t>(length);
    for (std::int64_t i = 0; i < num; ++i) { index.append(&each, 4); }
    for (std::int64_t i = 0; i < num; ++i)
    {
        const std::int64_t pointer = 2 * i * length;
        index.append(&pointer, 8);
    }
    for (std::int64_t i = 0; i <= num; ++i) { index.append(&i, 8); }
    index.publish();
    {
        File bin(prefix_ + ".bin", File::Mode::create);
        const std::uint16_t last[2] = {21, 22};
        bin.write_at(last, 4, 2 * num * length - 4);
    }
    const MegatronReader reader(prefix_);
    EXPECT_EQ(reader.num_tokens(), num * length);
    reader.verify_index();
    for (std::int64_t i = 0; i < num; ++i)
    {
        ASSERT_EQ(reader.document_ends()[static_cast<std::size_t>(i)], static_cast<std::uint64_t>((i + 1) * length));
    }
    std::vector<std::int64_t> tokens(3);
    reader.read(num * length - 3, 3, tokens.data());
    EXPECT_EQ(tokens, (std::vector<std::int64_t>{0, 21, 22}));
}

}  // namespace plimsoll
