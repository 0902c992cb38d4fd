#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <random>
#include <string>

#include "base/error.hpp"
#include "io/tokenizer/bpe_merger.hpp"
#include "io/tokenizer/byte_bpe_encoder.hpp"
#include "io/tokenizer/piece_hash.hpp"
#include "io/tokenizer/rank_file.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/tokenizer_json.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

namespace
{

// 256 bytes, then `num` random pairs of what is there, over few letters so that they meet.
BpeDefinition random_definition(std::uint64_t seed, int num, bool by_rank)
{
    std::mt19937_64 random(seed);
    BpeDefinition definition;
    definition.by_rank = by_rank;
    for (std::size_t byte = 0; byte < 256; ++byte)
    {
        definition.byte_ids[byte] = static_cast<std::int64_t>(byte);
        definition.tokens.emplace_back(1, static_cast<char>(byte));
    }
    while (num > 0)
    {
        const auto pick = [&]
        {
            return random() % 3 == 0 && definition.tokens.size() > 256
                       ? 256 + random() % (definition.tokens.size() - 256)
                       : 'a' + random() % 4;
        };
        const std::size_t left = pick();
        const std::size_t right = pick();
        const std::string token = definition.tokens[left] + definition.tokens[right];
        if (std::find(definition.tokens.begin(), definition.tokens.end(), token) != definition.tokens.end())
        {
            continue;
        }
        definition.merges.push_back({static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(right),
                                     static_cast<std::uint32_t>(definition.tokens.size())});
        definition.tokens.push_back(token);
        --num;
    }
    // Later tokens may come first: nothing says that what a merge needs has a lower rank.
    std::shuffle(definition.merges.begin(), definition.merges.end(), random);
    return definition;
}

std::vector<std::uint32_t> merge_naively(const BpeTables& tables, const std::string& piece)
{
    std::vector<std::uint32_t> ids;
    for (const char byte : piece) { ids.push_back(static_cast<unsigned char>(byte)); }
    for (;;)
    {
        std::uint32_t lowest = BpeTables::no_rank;
        std::size_t place = 0;
        for (std::size_t i = 0; i + 1 < ids.size(); ++i)
        {
            const std::uint32_t rank = tables.pair_rank(ids[i], ids[i + 1]);
            if (rank < lowest) { lowest = rank, place = i; }
        }
        if (lowest == BpeTables::no_rank) { return ids; }
        ids[place] = tables.merged_id(lowest);
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
}

std::string json_text(const std::string& vocab, const std::string& merges, const std::string& more = "")
{
    return R"({"version": "1.0", "added_tokens": [{"id": 9, "content": "<|endoftext|>", "special": true, "normalized": false}],)"
           R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, )" +
           more + R"("model": {"type": "BPE", "vocab": {)" + vocab + R"(}, "merges": [)" + merges + "]}}";
}

std::string message_of_json(const std::string& text)
{
    return testing::message_of([&] { parse_tokenizer_json("t.json", text); });
}

}  // namespace

TEST(BpeMerger, ShortAndLongPiecesMergeAsTheDefinitionSays)
{
    for (const bool by_rank : {false, true})
    {
        const BpeTables tables(random_definition(by_rank ? 3 : 5, 60, by_rank));
        BpeMerger merger(tables);
        std::mt19937_64 random(1);
        for (int i = 0; i < 400; ++i)
        {
            std::string piece;
            for (std::size_t bytes = 1 + random() % (i % 4 == 0 ? 300 : 64); bytes > 0; --bytes)
            {
                piece.push_back(static_cast<char>('a' + random() % (1 + static_cast<std::size_t>(i) % 5)));
            }
            std::vector<std::uint32_t> ids = {7};
            merger.merge(piece, ids);
            ids.erase(ids.begin());
            ASSERT_EQ(ids, merge_naively(tables, piece)) << piece;
        }
    }
}

TEST(BpeMerger, AVocabularyWhoseMergesSpellSomethingElseIsMergedByItsRanksAllTheSame)
{
    BpeDefinition definition = random_definition(6, 40, false);
    for (std::size_t id = 256; id < definition.tokens.size(); ++id)
    {
        definition.tokens[id] = "z" + std::to_string(id);
    }
    const BpeTables tables(std::move(definition));
    BpeMerger merger(tables);
    std::mt19937_64 random(8);
    for (int i = 0; i < 300; ++i)
    {
        std::string piece;
        for (std::size_t bytes = 1 + random() % 20; bytes > 0; --bytes)
        {
            piece.push_back(static_cast<char>('a' + random() % 4));
        }
        std::vector<std::uint32_t> ids;
        merger.merge(piece, ids);
        ASSERT_EQ(ids, merge_naively(tables, piece)) << piece;
    }
}

TEST(BpeMerger, ManyPiecesSideBySideMergeAsEachAlone)
{
    const BpeTables tables(random_definition(9, 60, false));
    BpeMerger merger(tables);
    std::mt19937_64 random(2);
    for (const std::size_t num : {0, 1, 7, 8, 9, 100})
    {
        std::vector<std::string> pieces(num);
        std::vector<std::uint32_t> ids(num * BpeMerger::max_short);
        std::vector<BpeMerger::Job> jobs;
        for (std::size_t i = 0; i < num; ++i)
        {
            const std::size_t bytes = 1 + random() % (i % 3 == 0 ? BpeMerger::max_short : 9);
            while (pieces[i].size() < bytes) { pieces[i].push_back(static_cast<char>('a' + random() % 4)); }
            jobs.push_back({pieces[i].data(), bytes, &ids[i * BpeMerger::max_short], 0});
        }
        merger.merge_all(jobs.data(), num);
        for (std::size_t i = 0; i < num; ++i)
        {
            ASSERT_EQ(std::vector<std::uint32_t>(jobs[i].ids, jobs[i].ids + jobs[i].num_ids),
                      merge_naively(tables, pieces[i]))
                << pieces[i];
        }
    }
}

// So many distinct pieces that some sets of the tables overflow, of all lengths, some of them again and again.
TEST(ByteBpeEncoder, GivesTheSameIdsWhateverItRemembersOfPieces)
{
    ByteBpe bpe(random_definition(4, 60, false));
    bpe.plan = plan_of_rules(*find_split_rules("gpt2"));
    std::mt19937_64 random(3);
    std::string text;
    for (int i = 0; i < 40000; ++i)
    {
        const std::size_t longest = random() % 16 == 0 ? 90 : random() % 4 == 0 ? 30 : 14;
        text.push_back(' ');
        for (std::size_t bytes = 1 + random() % longest; bytes > 0; --bytes)
        {
            text += random() % 9 == 0 ? "\u0436" : std::string(1, static_cast<char>('a' + random() % 4));
        }
        if (random() % 3 == 0) { text += " the cat"; }
    }
    // A queue full of pieces that are longer than any entry and have nearly as many ids as bytes.
    std::string long_piece;
    for (int i = 0; i < 66; ++i) { long_piece.push_back(static_cast<char>('0' + random() % 10)); }
    for (int i = 0; i < 400; ++i) { text += ' ' + long_piece; }
    std::vector<std::uint32_t> wanted;
    const PieceScanner scanner(bpe.plan.rules);
    BpeMerger merger(bpe.tables);
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at < end;)
    {
        const char* stop = scanner.next(at, end);
        merger.merge({at, static_cast<std::size_t>(stop - at)}, wanted);
        at = stop;
    }
    ByteBpeEncoder encoder(bpe);
    for (int pass = 0; pass < 2; ++pass)
    {
        std::vector<std::uint32_t> ids;
        encoder.encode(text, ids);
        EXPECT_TRUE(ids == wanted) << "pass " << pass;
    }
    const auto& counts = encoder.counts();
    EXPECT_GT(counts.cache_hits, counts.cache_lookups / 2);
    EXPECT_LT(counts.cache_hits, counts.cache_lookups - 40000 / 2);
}

TEST(BpeMerger, AMillionEqualLettersTakeNoTime)
{
    const BpeTables tables(random_definition(9, 60, true));
    BpeMerger merger(tables);
    std::vector<std::uint32_t> ids;
    merger.merge(std::string(1'000'000, 'a'), ids);
    std::size_t bytes = 0;
    for (const std::uint32_t id : ids) { bytes += tables.definition().tokens[id].size(); }
    EXPECT_EQ(bytes, 1'000'000U);
}

// Tokens of up to 8192 bytes: longer than any window, so that windows of all sizes disagree.
TEST(BpeMerger, TokensLongerThanWindowsMergeInAMillionBytes)
{
    BpeDefinition definition = random_definition(1, 0, false);
    std::uint32_t last = 'a';
    for (std::size_t bytes = 2; bytes <= 8192; bytes *= 2)
    {
        const auto id = static_cast<std::uint32_t>(definition.tokens.size());
        definition.merges.push_back({last, last, id});
        definition.tokens.emplace_back(bytes, 'a');
        last = id;
    }
    const BpeTables tables(std::move(definition));
    BpeMerger merger(tables);
    for (const std::size_t bytes : {65U, 4095U, 8191U, 8192U, 30'000U, 1'000'000U})
    {
        std::vector<std::uint32_t> expected(bytes / 8192, last);
        for (std::uint32_t bit = 12; bit > 0; --bit)
        {
            if ((bytes >> bit & 1U) != 0) { expected.push_back(255 + bit); }
        }
        if (bytes % 2 == 1) { expected.push_back('a'); }
        std::vector<std::uint32_t> ids;
        merger.merge(std::string(bytes, 'a'), ids);
        EXPECT_EQ(ids, expected) << bytes;
    }
}

TEST(RankFile, BrokenFilesAreRefusedWithTheLine)
{
    const auto message = [](const std::string& text)
    { return testing::message_of([&] { parse_rank_file("x.tiktoken", text); }); };
    EXPECT_EQ(message("IQ== 0\n?? 1\n"), "x.tiktoken: line 2 is not 'base64 rank'");
    EXPECT_EQ(message("IQ== 0\nIg== 0\n"), "x.tiktoken: line 2: rank 0 stands twice");
    EXPECT_EQ(message("IQ== 0\nIQ== 1\n"), "x.tiktoken: the token of rank 1 stands twice");
    EXPECT_EQ(message("IQ== 99999999\n"), "x.tiktoken: line 1: rank 99999999 is too high (at most 2097151)");
    EXPECT_EQ(message("IQ== 100\n"),
              "x.tiktoken: 100 of 101 ranks are missing (at most 16 may be left to special tokens)");
    EXPECT_EQ(message("IQ== 0\n"),
              "x.tiktoken: there is no token for byte 0x00 alone (text with it could not be encoded)");
    EXPECT_TRUE(looks_like_rank_file("IQ== 0\nIg== 1\n"));
    EXPECT_FALSE(looks_like_rank_file("\x0A\x0E\x0A\x05<unk>"));
}

TEST(TokenizerJson, BrokenFilesAreRefusedByName)
{
    EXPECT_EQ(message_of_json(R"({"version": "2.0"})"),
              "t.json: version '2.0' is not known (of tokenizer.json). known: 1.0");
    EXPECT_EQ(message_of_json(R"([1])"), "t.json: not a tokenizer.json (no object at the top)");
    EXPECT_EQ(message_of_json(R"({"version": "1.0"})"), "t.json: there is no model");
    EXPECT_EQ(message_of_json(R"({"version": "1.0", "model": {"type": "WordPiece"}})"),
              "t.json: model type 'WordPiece' is not supported. supported: BPE, Unigram");
    EXPECT_EQ(message_of_json(json_text(R"("a": 0, "b": 0)", "")),
              "t.json: id 0 stands twice in model.vocab (the second is 'b')");
    EXPECT_EQ(message_of_json(json_text(R"("a": 0, "a": 1)", "")), "t.json: token 'a' stands twice in model.vocab");
    EXPECT_EQ(message_of_json(json_text(R"("a": 0, "b": 1)", R"("a b")")),
              "t.json: merge 0 needs token 'ab', which is not in model.vocab");
    EXPECT_EQ(message_of_json(json_text(R"("a": 0, "b": 1)", R"("a c")")),
              "t.json: merge 0 needs token 'c', which is not in model.vocab");
    EXPECT_EQ(message_of_json(json_text(R"("a": 0)", R"("a")")),
              "t.json: merge 0 'a' is not two tokens with a space between them");
    EXPECT_EQ(message_of_json(json_text(R"("a": 0)", "7")), R"(t.json: merge 0 is neither "a b" nor ["a", "b"])");
    EXPECT_EQ(message_of_json("{").substr(0, 24), "t.json: not valid json (");
}

TEST(ByteBpe, ReadsMergesInBothFormsAndSaysWhatItCannotDo)
{
    const testing::TempDir folder;
    const auto make = [&](const std::string& text)
    {
        std::ofstream(folder / "t.json") << text;
        return make_tokenizer(folder / "t.json");
    };
    const std::string vocab = R"("a": 0, "b": 1, "ab": 2, "\u0120": 3, "\u0120ab": 4)";
    for (const char* merges : {R"("a b", "\u0120 ab")", R"(["a", "b"], ["\u0120", "ab"])"})
    {
        const auto tokenizer = make(json_text(vocab, merges));
        std::vector<std::uint32_t> ids;
        tokenizer->make_encoder()->encode("ab aba<|endoftext|>", ids);
        // Bytes without a token and without unk are dropped, as HF does; the special token's text is text.
        EXPECT_EQ(ids, (std::vector<std::uint32_t>{2, 4, 0}));
        EXPECT_EQ(tokenizer->eod(), 5U) << "the file's id 9 is not what counts";
        EXPECT_EQ(tokenizer->vocab(), 6);
        EXPECT_EQ(tokenizer->decode(ids.data(), 3), "ab aba");
        EXPECT_EQ(tokenizer->description(), "byte-level bpe, pattern gpt2, unicode 16.0.0");
    }
    const auto message = [&](const std::string& more)
    { return testing::message_of([&] { make(json_text(vocab, "", more)); }); };
    EXPECT_EQ(message(R"("normalizer": {"type": "Lowercase"}, )"),
              (folder / "t.json") + ": normalizer Lowercase is not supported (of a byte-level bpe). supported: NFC");
    make(json_text(vocab, ""));
    TokenizerOptions options;
    options.eod = "</s>";
    EXPECT_EQ(testing::message_of([&] { make_tokenizer(folder / "t.json", options); }),
              "tokenizer 't.json' has no special token '</s>' to end a document with. name another with --eod");
    options = {};
    options.special_in_text = SpecialInText::error;
    std::vector<std::uint32_t> ids;
    EXPECT_EQ(testing::message_of(
                  [&] { make_tokenizer(folder / "t.json", options)->make_encoder()->encode("a<|endoftext|>", ids); }),
              "the text of special token '<|endoftext|>' stands in the document");
}

}  // namespace plimsoll
