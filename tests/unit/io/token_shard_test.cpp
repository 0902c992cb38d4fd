#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.hpp"
#include "io/corpus_manifest.hpp"
#include "io/file.hpp"
#include "io/hdf5.hpp"
#include "io/token_shard.hpp"
#include "support/temp_dir.hpp"

// HDF5 1.10 loses a few hundred bytes of its own when it refuses damaged metadata; called by the leak checker only.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace plimsoll
{

namespace
{

using Ids = std::vector<std::uint32_t>;

Ids some_ids(std::int64_t num, std::int64_t vocab, std::uint64_t salt = 1)
{
    Ids ids(static_cast<std::size_t>(num));
    for (std::size_t i = 0; i < ids.size(); ++i)
    {
        ids[i] = static_cast<std::uint32_t>((i * 2654435761u + salt * 40503u) % static_cast<std::uint64_t>(vocab));
    }
    return ids;
}

template<class Body>
std::string error_of(const Body& body)
{
    try
    {
        body();
    }
    catch (const Error& error)
    {
        return error.what();
    }
    return "(no error)";
}

class TokenShardTest : public ::testing::Test
{
  protected:
    TokenShardInfo write(const std::string& name, const std::vector<Ids>& documents, std::int64_t vocab = 257,
                         const std::string& fingerprint = "f00d")
    {
        TokenShardWriter writer(dir_ / name, vocab, "bytes", fingerprint);
        for (const Ids& ids : documents)
        {
            const auto num = static_cast<std::int64_t>(ids.size());
            writer.add_document(ids.data(), num, num - 1);
        }
        return writer.finish();
    }

    std::vector<std::int64_t> read_all(const std::string& name)
    {
        const TokenShardReader reader(dir_ / name);
        std::vector<std::int64_t> tokens(static_cast<std::size_t>(reader.info().num_tokens));
        reader.read(0, reader.info().num_tokens, tokens.data());
        return tokens;
    }

    std::int64_t offset_of(const std::string& name, const std::string& dataset)
    {
        return H5File::open(dir_ / name, H5File::Access::read).dataset(dataset).file_offset();
    }

    void flip(const std::string& name, std::int64_t offset)
    {
        File file(dir_ / name, File::Mode::read_write);
        char byte = 0;
        file.read_at(&byte, 1, offset);
        byte = static_cast<char>(byte ^ 0x10);
        file.write_at(&byte, 1, offset);
    }

    std::vector<std::string> left_behind() { return list_directory(dir_.path()); }

    plimsoll::testing::TempDir dir_;
};

}  // namespace

TEST_F(TokenShardTest, OneTokenIsAShard)
{
    const TokenShardInfo info = write("a.h5", {{256}});
    EXPECT_EQ(info.num_tokens, 1);
    EXPECT_EQ(info.text_bytes, 0);
    EXPECT_EQ(read_all("a.h5"), (std::vector<std::int64_t>{256}));
    EXPECT_EQ(left_behind(), (std::vector<std::string>{"a.h5"}));
}

TEST_F(TokenShardTest, ReadsBackWhatWasWrittenWithDocumentsAndCounts)
{
    // Several blocks of 64 KiB, documents across block borders.
    std::vector<Ids> documents;
    Ids all;
    for (const std::int64_t num : {1, 2, 40000, 32768, 65536, 7})
    {
        documents.push_back(some_ids(num, 257, static_cast<std::uint64_t>(num)));
        all.insert(all.end(), documents.back().begin(), documents.back().end());
    }
    const TokenShardInfo written = write("a.h5", documents);
    const TokenShardReader reader(dir_ / "a.h5");
    EXPECT_EQ(reader.info().num_tokens, static_cast<std::int64_t>(all.size()));
    EXPECT_EQ(reader.info().num_documents, 6);
    EXPECT_EQ(reader.info().text_bytes, static_cast<std::int64_t>(all.size()) - 6);
    EXPECT_EQ(reader.info().dtype, Dtype::u16);
    EXPECT_EQ(reader.info().tokenizer, "bytes");
    EXPECT_EQ(reader.info().fingerprint, "f00d");
    EXPECT_EQ(reader.info().tokens_crc, written.tokens_crc);
    EXPECT_EQ(reader.info().file_bytes, written.file_bytes);
    EXPECT_EQ(reader.document_ends(), (std::vector<std::uint64_t>{1, 3, 40003, 72771, 138307, 138314}));
    EXPECT_EQ(reader.document_text_bytes(), (std::vector<std::uint64_t>{0, 1, 39999, 32767, 65535, 6}));
    EXPECT_EQ(read_all("a.h5"), (std::vector<std::int64_t>(all.begin(), all.end())));
    reader.verify();
    for (const std::int64_t begin : {0, 1, 32767, 32768, 100000, 138313})
    {
        for (const std::int64_t num : {0, 1, 5, 33000})
        {
            if (begin + num > reader.info().num_tokens) { continue; }
            std::vector<std::int64_t> tokens(static_cast<std::size_t>(num));
            reader.read(begin, num, tokens.data());
            EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), all.begin() + begin)) << begin << " " << num;
        }
    }
    std::vector<std::uint16_t> narrow(all.begin(), all.end());
    EXPECT_EQ(written.tokens_crc, crc32c(narrow.data(), static_cast<std::int64_t>(narrow.size() * 2)));
}

TEST_F(TokenShardTest, DtypeFollowsTheVocabularyAtOneThreshold)
{
    // data.md section 5 row 21.
    for (const std::int64_t vocab : {65535, 65536, 65537})
    {
        const auto last = static_cast<std::uint32_t>(vocab - 1);
        const TokenShardInfo info = write("a.h5", {{0, last}}, vocab);
        EXPECT_EQ(info.dtype, vocab <= 65536 ? Dtype::u16 : Dtype::u32);
        EXPECT_EQ(read_all("a.h5"), (std::vector<std::int64_t>{0, vocab - 1}));
    }
}

TEST_F(TokenShardTest, IdsOutsideTheVocabularyAreRefusedAtWrite)
{
    EXPECT_EQ(error_of(
                  [&] {
                      write("a.h5", {{1, 2}, {3, 257}});
                  }),
              "token id 257 at position 1 of document 1 is not below the vocabulary of 257 (tokenizer 'bytes')");
    EXPECT_EQ(error_of([&] { write("a.h5", {{65536}}, 65536); }),
              "token id 65536 at position 0 of document 0 is not below the vocabulary of 65536 (tokenizer 'bytes')");
    EXPECT_TRUE(left_behind().empty());
}

TEST_F(TokenShardTest, NothingIsVisibleBeforeFinishAndNothingStaysWithoutIt)
{
    {
        TokenShardWriter writer(dir_ / "a.h5", 257, "bytes", "f00d");
        const Ids ids = some_ids(100000, 257);
        writer.add_document(ids.data(), 100000, 99999);
        EXPECT_TRUE(left_behind().empty()) << "not even a temporary name";
        EXPECT_EQ(writer.num_tokens(), 100000);
    }
    EXPECT_TRUE(left_behind().empty());
}

TEST_F(TokenShardTest, SameTokensGiveTheSameBytes)
{
    write("a.h5", {some_ids(70000, 257), {256}});
    // HDF5 notes times in seconds.
    for (const std::time_t then = std::time(nullptr); std::time(nullptr) == then;) { std::this_thread::yield(); }
    write("b.h5", {some_ids(70000, 257), {256}});
    EXPECT_EQ(read_text_file(dir_ / "a.h5"), read_text_file(dir_ / "b.h5"));
}

TEST_F(TokenShardTest, LossMaskIsDeclaredStoredAndServed)
{
    const Ids ids = some_ids(100, 257);
    std::vector<std::uint8_t> mask(100, 1);
    for (std::size_t i = 0; i < 30; ++i) { mask[i] = 0; }
    TokenShardWriter writer(dir_ / "a.h5", 257, "bytes", "f00d", true);
    writer.add_document(ids.data(), 100, 99, mask.data());
    const TokenShardInfo info = writer.finish();
    EXPECT_TRUE(info.has_loss_mask);
    EXPECT_EQ(info.loss_mask_crc, crc32c(mask.data(), 100));
    EXPECT_EQ(H5File::open(dir_ / "a.h5", H5File::Access::read).root().attribute_string("required_features"),
              "loss_mask");
    const TokenShardReader reader(dir_ / "a.h5");
    EXPECT_TRUE(reader.info().has_loss_mask);
    std::vector<std::uint8_t> part(10);
    reader.read_loss_mask(25, 10, part.data());
    EXPECT_EQ(part, (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}));
    reader.verify();

    write("b.h5", {{1, 256}});
    const TokenSource source({dir_ / "b.h5", dir_ / "a.h5"});
    EXPECT_TRUE(source.has_loss_mask());
    std::vector<std::int64_t> tokens(4);
    std::vector<std::uint8_t> both(4);
    source.read(0, 4, tokens.data(), both.data());
    EXPECT_EQ(both, (std::vector<std::uint8_t>{1, 1, 0, 0})) << "all ones where a shard has none";
}

TEST_F(TokenShardTest, BitFlipIsNamedWithFileAndBlockWhenTouched)
{
    write("a.h5", {some_ids(100000, 257)});
    flip("a.h5", offset_of("a.h5", "/tokens") + 2 * 65536 + 17);
    const TokenShardReader reader(dir_ / "a.h5");
    std::vector<std::int64_t> tokens(100000);
    reader.read(0, 65536, tokens.data());
    const std::string expected = (dir_ / "a.h5") + ": block 3 of /tokens is damaged (crc32c ";
    for (int attempt = 0; attempt < 2; ++attempt)
    {
        const std::string text = error_of([&] { reader.read(70000, 1, tokens.data()); });
        EXPECT_EQ(text.substr(0, expected.size()), expected) << "every time, not only the first";
    }
    const std::string text = error_of([&] { reader.verify(); });
    EXPECT_EQ(text.substr(0, expected.size()), expected);
    EXPECT_NE(text.find("). make the shard again or restore a copy"), std::string::npos);
}

TEST_F(TokenShardTest, DamagedDocumentTablesAreFound)
{
    std::vector<Ids> documents(20000, Ids{1, 256});
    write("a.h5", documents);
    flip("a.h5", offset_of("a.h5", "/documents/ends") + 8);
    EXPECT_NE(error_of([&] { TokenShardReader(dir_ / "a.h5").verify(); }).find("block 1 of /documents/ends is damaged"),
              std::string::npos);
    write("a.h5", documents);
    flip("a.h5", offset_of("a.h5", "/documents/text_bytes") + 100000);
    EXPECT_NE(error_of([&] { TokenShardReader(dir_ / "a.h5").verify(); }).find("block 2 of /documents/text_bytes"),
              std::string::npos);
}

TEST_F(TokenShardTest, NoTruncationGoesUnnoticed)
{
    write("a.h5", {some_ids(50000, 257)});
    const std::string whole = read_text_file(dir_ / "a.h5");
    for (std::size_t size = 0; size < whole.size(); size += whole.size() / 37)
    {
        std::ofstream(dir_ / "b.h5", std::ios::binary) << whole.substr(0, size);
        const std::string text = error_of([&] { TokenShardReader(dir_ / "b.h5").verify(); });
        EXPECT_EQ(text.substr(0, (dir_ / "b.h5").size()), dir_ / "b.h5") << text;
    }
}

TEST_F(TokenShardTest, BitFlipsAnywhereCrashNothingAndThoseInTokensAreAlwaysFound)
{
    write("a.h5", {some_ids(3000, 257), some_ids(500, 257)});
    const std::string whole = read_text_file(dir_ / "a.h5");
    const auto tokens_at = static_cast<std::size_t>(offset_of("a.h5", "/tokens"));
    for (std::size_t at = 0; at < whole.size(); at += whole.size() / 90)
    {
        std::string bad = whole;
        bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
        std::ofstream(dir_ / "b.h5", std::ios::binary) << bad;
        const std::string text = error_of([&] { TokenShardReader(dir_ / "b.h5").verify(); });
        if (at >= tokens_at && at < tokens_at + 7000)
        {
            EXPECT_NE(text.find("block 1 of /tokens is damaged"), std::string::npos) << at;
        }
    }
}

TEST_F(TokenShardTest, FilesThatAreNoFinishedShardSayWhy)
{
    std::ofstream(dir_ / "text.h5") << "hello";
    EXPECT_NE(error_of([&] { TokenShardReader(dir_ / "text.h5"); }).find("not an hdf5 file"), std::string::npos);
    EXPECT_NE(error_of([&] { TokenShardReader(dir_ / "none.h5"); }).find("no such file or directory"),
              std::string::npos);
    H5File::create(dir_ / "other.h5").close();
    EXPECT_EQ(error_of([&] { TokenShardReader(dir_ / "other.h5"); }),
              (dir_ / "other.h5") + ": not a token shard (an hdf5 file of another kind). make one with plimsoll-shard");

    write("a.h5", {{1, 2, 256}});
    const auto change = [&](const auto& edit)
    {
        std::filesystem::copy_file(dir_ / "a.h5", dir_ / "b.h5", std::filesystem::copy_options::overwrite_existing);
        H5File file = H5File::open(dir_ / "b.h5", H5File::Access::read_write);
        edit(file.root());
        file.close();
        return error_of([&] { TokenShardReader(dir_ / "b.h5"); });
    };
    EXPECT_EQ(change([](H5Group root) { root.set_attribute("complete", std::uint8_t{0}); }),
              (dir_ / "b.h5") + ": incomplete token shard (its writer was interrupted). make it again");
    EXPECT_EQ(change(
                  [](H5Group root) {
                      root.set_attribute("format_version", std::vector<std::uint64_t>{2, 0});
                  }),
              (dir_ / "b.h5") + ": token shard of format version 2.0 (this version reads 1.x)");
    EXPECT_EQ(change([](H5Group root) { root.set_attribute("required_features", "x"); }),
              (dir_ / "b.h5") + ": needs the feature 'x' (not available in this version)");
    EXPECT_EQ(change([](H5Group root) { root.set_attribute("vocab", std::int64_t{70000}); }),
              (dir_ / "b.h5") + ": /tokens is u16, expected u32");
    EXPECT_EQ(change([](H5Group) {}), "(no error)");
}

TEST_F(TokenShardTest, ManyThreadsReadOneShard)
{
    const Ids ids = some_ids(300000, 257);
    write("a.h5", {ids});
    const TokenShardReader reader(dir_ / "a.h5");
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t)
    {
        threads.emplace_back(
            [&, t]
            {
                std::vector<std::int64_t> tokens(1000);
                for (int i = 0; i < 200; ++i)
                {
                    const std::int64_t begin = (i * 7919ll + t * 104729ll) % 299000;
                    reader.read(begin, 1000, tokens.data());
                    if (!std::equal(tokens.begin(), tokens.end(), ids.begin() + begin)) { ++wrong; }
                }
            });
    }
    for (std::thread& thread : threads) { thread.join(); }
    EXPECT_EQ(wrong, 0);
}

TEST_F(TokenShardTest, SourceReadsAcrossShards)
{
    const std::vector<Ids> parts = {some_ids(5, 257, 1), some_ids(1, 257, 2), some_ids(7, 257, 3)};
    Ids all;
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < parts.size(); ++i)
    {
        write(fmt::format("{}.h5", i), {parts[i]});
        paths.push_back(dir_ / fmt::format("{}.h5", i));
        all.insert(all.end(), parts[i].begin(), parts[i].end());
    }
    const TokenSource source(paths);
    EXPECT_EQ(source.num_tokens(), 13);
    EXPECT_EQ(source.text_bytes(), 10);
    for (std::int64_t begin = 0; begin < 13; ++begin)
    {
        for (std::int64_t num = 0; begin + num <= 13; ++num)
        {
            std::vector<std::int64_t> tokens(static_cast<std::size_t>(num));
            source.read(begin, num, tokens.data(), nullptr);
            EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), all.begin() + begin)) << begin << " " << num;
        }
    }
}

TEST_F(TokenShardTest, ShardsOfTwoTokenizersAreNotMixed)
{
    write("a.h5", {{1, 256}}, 257, std::string(64, 'a'));
    write("b.h5", {{1, 256}}, 257, std::string(64, 'b'));
    EXPECT_EQ(error_of(
                  [&] {
                      TokenSource({dir_ / "a.h5", dir_ / "b.h5"});
                  }),
              "shards of two tokenizers cannot be mixed: '" + (dir_ / "a.h5") +
                  "' has tokenizer 'bytes' (vocabulary 257, sha256 aaaaaaaaaaaa), '" + (dir_ / "b.h5") +
                  "' has tokenizer 'bytes' (vocabulary 257, sha256 bbbbbbbbbbbb)");
    EXPECT_THROW(TokenSource({}), ConfigError);
}

TEST_F(TokenShardTest, WindowsBeyondFourGibibytesAreReadFromTheirPlace)
{
    // data.md section 5 rows 3 and 17: a sparse file stands for a real one; only its last block is touched.
    write("a.h5", {{1, 2, 256}}, 70000);
    const std::int64_t num = (5ll << 30) / 4;
    H5File file = H5File::create(dir_ / "big.h5");
    H5Group root = file.root();
    root.set_attribute("format", "plimsoll-token-shard");
    root.set_attribute("format_version", std::vector<std::uint64_t>{1, 0});
    root.set_attribute("required_features", "");
    root.set_attribute("tokenizer", "big");
    root.set_attribute("tokenizer_sha256", "f00d");
    root.set_attribute("vocab", std::int64_t{70000});
    root.set_attribute("text_bytes", std::int64_t{0});
    root.set_attribute("complete", std::uint8_t{1});
    const std::uint64_t end = static_cast<std::uint64_t>(num);
    const std::uint64_t zero = 0;
    const std::vector<std::uint32_t> last = {69997, 69998, 69999};
    std::vector<char> block(65536, 0);
    std::memcpy(block.data() + 65536 - 12, last.data(), 12);
    std::vector<std::uint32_t> crcs(static_cast<std::size_t>(num * 4 / 65536));
    crcs.back() = crc32c(block.data(), 65536);
    H5Dataset tokens = file.create_dataset("/tokens", Dtype::u32, {num});
    tokens.set_attribute("crc32c", std::uint64_t{0});
    const std::int64_t offset = tokens.file_offset();
    const std::vector<std::pair<std::string, std::uint64_t>> tables = {{"ends", end}, {"text_bytes", zero}};
    for (const auto& table : tables)
    {
        H5Dataset dataset = file.create_dataset("/documents/" + table.first, Dtype::u64, {1});
        dataset.write(&table.second);
        const std::uint32_t crc = crc32c(&table.second, 8);
        dataset.set_attribute("crc32c", static_cast<std::uint64_t>(crc));
        file.create_dataset("/crc/document_" + table.first, Dtype::u32, {1}).write(&crc);
    }
    file.create_dataset("/crc/tokens", Dtype::u32, {static_cast<std::int64_t>(crcs.size())}).write(crcs.data());
    file.group("/crc").set_attribute("block_bytes", std::int64_t{65536});
    file.close();
    File(dir_ / "big.h5", File::Mode::read_write).write_at(block.data() + 65536 - 12, 12, offset + num * 4 - 12);

    const TokenShardReader reader(dir_ / "big.h5");
    std::vector<std::int64_t> read(3);
    reader.read(num - 3, 3, read.data());
    EXPECT_EQ(read, (std::vector<std::int64_t>{69997, 69998, 69999}));
}

TEST_F(TokenShardTest, ShardsWithAManifestAreOpenedWhenFirstRead)
{
    CorpusManifest manifest;
    manifest.tokenizer = "bytes";
    manifest.fingerprint = "f00d";
    manifest.vocab = 257;
    std::vector<std::string> paths;
    for (const char* name : {"a.h5", "b.h5", "validation/c.h5"})
    {
        std::filesystem::create_directories(std::filesystem::path(dir_ / name).parent_path());
        const TokenShardInfo info = write(name, {{1, 2, 3, 256}});
        CorpusShard shard;
        shard.set = "train";
        shard.info = info;
        shard.info.path = name;
        manifest.shards.push_back(shard);
        paths.push_back(dir_ / name);
    }
    write_file(dir_ / "manifest.json", manifest_text(manifest));
    const TokenSource source(paths);
    EXPECT_EQ(source.num_open(), 0u);
    EXPECT_EQ(source.num_tokens(), 12);
    std::int64_t token = 0;
    source.read(9, 1, &token, nullptr);
    EXPECT_EQ(token, 2);
    EXPECT_EQ(source.num_open(), 1u);

    const TokenSource early(paths);
    write("a.h5", {{1, 2, 9, 256}});  // as large as before
    EXPECT_NE(error_of([&] { early.read(0, 1, &token, nullptr); })
                  .find((dir_ / "a.h5") + ": is not the shard that the run began with (4 tokens with crc32c "),
              std::string::npos);
    write("b.h5", {{1, 2, 3, 4, 256}, {7, 256}});  // of another size: its header counts
    EXPECT_EQ(TokenSource(paths).num_tokens(), 15);
    write_file(dir_ / "manifest.json", "{ torn");
    EXPECT_EQ(TokenSource(paths).num_open(), 3u) << "without a manifest all are opened";
}

TEST_F(TokenShardTest, ManyShardsAreNeverAllOpen)
{
    const std::string path = write("a.h5", {{1, 2, 256}}).path;
    const std::size_t num = TokenSource::max_open + 40;
    const TokenSource source(std::vector<std::string>(num, path));
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(source.num_tokens()));
    EXPECT_EQ(source.num_open(), TokenSource::max_open);
    source.read(0, source.num_tokens(), tokens.data(), nullptr);
    EXPECT_EQ(source.num_open(), TokenSource::max_open);
    for (std::size_t i = 0; i < tokens.size(); i += 3) { ASSERT_EQ(tokens[i], 1); }
}

TEST_F(TokenShardTest, AnotherWriterGoesOnFromWhatWasPersisted)
{
    std::vector<Ids> documents;
    for (const std::int64_t num : {5, 40000, 1, 32768, 30000})
    {
        documents.push_back(some_ids(num, 257, static_cast<std::uint64_t>(num)));
    }
    const TokenShardInfo whole = write("whole.h5", documents);
    for (std::size_t cut = 0; cut <= documents.size(); ++cut)
    {
        const std::string path = dir_ / "a.h5";
        TokenShardProgress progress;
        {
            TokenShardWriter first(path, 257, "bytes", "f00d", false, SpillFiles::kept);
            for (std::size_t i = 0; i < documents.size(); ++i)
            {
                if (i == cut) { progress = first.persist(TokenShardWriter::Durable::no); }
                first.add_document(documents[i].data(), static_cast<std::int64_t>(documents[i].size()),
                                   static_cast<std::int64_t>(documents[i].size()) - 1);
            }
            if (cut == documents.size()) { progress = first.persist(TokenShardWriter::Durable::yes); }
        }
        TokenShardWriter second(path, 257, "bytes", "f00d", false, progress);
        for (std::size_t i = cut; i < documents.size(); ++i)
        {
            second.add_document(documents[i].data(), static_cast<std::int64_t>(documents[i].size()),
                                static_cast<std::int64_t>(documents[i].size()) - 1);
        }
        EXPECT_EQ(second.finish().skeleton_crc, whole.skeleton_crc);
        EXPECT_EQ(read_text_file(path), read_text_file(dir_ / "whole.h5")) << cut;
        TokenShardWriter::remove_spill_files(path);
        EXPECT_EQ(left_behind(), (std::vector<std::string>{"a.h5", "whole.h5"}));
    }
}

TEST_F(TokenShardTest, FilesThatAreNotWhatWasPersistedAreRefused)
{
    const Ids ids = some_ids(50000, 257);
    TokenShardProgress progress;
    {
        TokenShardWriter writer(dir_ / "a.h5", 257, "bytes", "f00d", false, SpillFiles::kept);
        writer.add_document(ids.data(), 50000, 1);
        progress = writer.persist(TokenShardWriter::Durable::no);
    }
    flip("a.h5.tokens.tmp", 70000);
    const auto go_on = [&] { TokenShardWriter(dir_ / "a.h5", 257, "bytes", "f00d", false, progress); };
    EXPECT_NE(error_of(go_on).find("a.h5.tokens.tmp: is not what it was (crc32c "), std::string::npos);
    remove_tree(dir_ / "a.h5.tokens.tmp");
    EXPECT_NE(error_of(go_on).find("cannot open"), std::string::npos);
}

}  // namespace plimsoll
