#include "io/tokenizer/sentencepiece_tokenizer.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "support/expect_error.hpp"

namespace plimsoll
{

namespace
{

std::string spm_number(unsigned field, unsigned value)
{
    return std::string{static_cast<char>((field << 3 & 0x7FU) | (field > 15 ? 0x80U : 0U))} +
           (field > 15 ? std::string(1, static_cast<char>(field >> 4)) : "") + static_cast<char>(value);
}

std::string spm_blob(unsigned field, const std::string& bytes)
{
    return std::string{static_cast<char>(field << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string spm_piece(const std::string& text, float score, unsigned type = 1)
{
    const auto bits = std::bit_cast<std::uint32_t>(score);
    std::string number = "\x15";
    for (unsigned i = 0; i < 4; ++i) { number.push_back(static_cast<char>(bits >> 8 * i)); }
    return spm_blob(1, spm_blob(1, text) + number + spm_number(3, type));
}

const std::string spm_start = spm_piece("<unk>", 0, 2) + spm_piece("<s>", 0, 3) + spm_piece("</s>", 0, 3);

/// A model with id 3 on for `pieces`; kind 1 unigram, 2 bpe.
std::string spm_model(const std::string& pieces, unsigned kind)
{
    return spm_start + pieces + spm_blob(2, spm_number(3, kind));
}

std::vector<std::uint32_t> spm_ids(const Tokenizer& tokenizer, std::string_view text)
{
    std::vector<std::uint32_t> ids;
    tokenizer.make_encoder()->encode(text, ids);
    return ids;
}

using Ids = std::vector<std::uint32_t>;
using testing::expect_error;

}  // namespace

TEST(Sentencepiece, BpeMergesTheHighestScoreFirstAndTheLeftmostOfEqualOnes)
{
    const auto bpe =
        make_sentencepiece_model(spm_model(spm_piece("a", -9) + spm_piece("b", -9) + spm_piece("ab", -2) +
                                               spm_piece("ba", -2) + spm_piece("bb", -1) + spm_piece("\u2581", -9),
                                           2),
                                 "x.model");
    EXPECT_EQ(spm_ids(*bpe, "aba"), (Ids{8, 5, 3})) << "a space stands in front";
    EXPECT_EQ(spm_ids(*bpe, "abba"), (Ids{8, 3, 7, 3}));
    EXPECT_EQ(spm_ids(*bpe, " a  b "), (Ids{8, 3, 8, 4})) << "extra spaces vanish";
    EXPECT_EQ(spm_ids(*bpe, "xyz"), (Ids{8, 0})) << "unknown characters are one token";
    EXPECT_EQ(spm_ids(*bpe, ""), Ids{});
    EXPECT_EQ(bpe->vocab(), 9);
    EXPECT_EQ(bpe->eod(), 2U);
    EXPECT_EQ(bpe->description(), "sentencepiece bpe");
    EXPECT_EQ(bpe->special_id("</s>"), 2U);
    EXPECT_EQ(bpe->special_id("a"), std::nullopt);
    const Ids ids = {8, 5, 3, 8, 7, 2};
    EXPECT_EQ(bpe->decode(ids.data(), 6), "aba bb");
}

TEST(Sentencepiece, UnigramTakesTheBestSum)
{
    const auto unigram =
        make_sentencepiece_model(spm_model(spm_piece("a", -1) + spm_piece("b", -1) + spm_piece("ab", -1.5F) +
                                               spm_piece("abb", -2.75F) + spm_piece("\u2581", -1),
                                           1),
                                 "x.model");
    EXPECT_EQ(spm_ids(*unigram, "abb"), (Ids{7, 5, 4}));
    EXPECT_EQ(spm_ids(*unigram, "aabc"), (Ids{7, 3, 5, 0}));
}

TEST(Sentencepiece, LongStretchesWithoutACutAreNotQuadratic)
{
    std::string pieces;
    for (std::size_t n = 1; n <= 64; n *= 2) { pieces += spm_piece(std::string(n, 'a'), -static_cast<float>(n)); }
    for (const unsigned kind : {1U, 2U})
    {
        const auto tokenizer = make_sentencepiece_model(spm_model(pieces, kind), "x.model");
        const Ids ids = spm_ids(*tokenizer, std::string(1 << 18, 'a'));
        // The space in front is unknown.
        EXPECT_EQ(ids.size(), 1 + (kind == 2 ? (1U << 18) / 64 : ids.size() - 1));
    }
}

TEST(Sentencepiece, BrokenFilesSayWhatIsWrong)
{
    const auto read = [](const std::string& bytes) { return [bytes] { make_sentencepiece_model(bytes, "x.model"); }; };
    expect_error<FormatError>(read(""), "x.model: no pieces (not a sentencepiece model?)");
    expect_error<FormatError>(read("\x0A\x7F"), "x.model: broken protobuf (127 bytes expected, 0 left)");
    expect_error<FormatError>(read("\x0B"), "x.model: broken protobuf (field 1 has wire type 3)");
    expect_error<FormatError>(read("\x08\x01"), "x.model: broken protobuf (field 1 is a number)");
    expect_error<FormatError>(read(std::string(11, '\xFF')),
                              "x.model: broken protobuf (a number of more than 10 bytes)");
    expect_error<FormatError>(read(std::string("\x02\x00", 2)), "x.model: broken protobuf (field number 0)");
    expect_error<FormatError>(read(spm_piece("a", 0)), "x.model: 0 pieces of type unknown (one is needed)");
    expect_error<FormatError>(read(spm_start + spm_piece("a", 0) + spm_piece("a", 0)),
                              "x.model: piece 4 is there twice");
    expect_error<FormatError>(read(spm_start + spm_piece("\xFF", 0)),
                              "x.model: piece 3 is not text (UTF-8 without NUL)");
    expect_error<FormatError>(read(spm_start + spm_piece("", 0)), "x.model: piece 3 is empty");
    expect_error<FormatError>(read(spm_start + spm_piece("a", NAN)),
                              "x.model: score of piece 3 is not a finite number");
    expect_error<FormatError>(read(spm_start + spm_piece("a", 0, 9)), "x.model: type 9 of a piece is not known");
    expect_error<FormatError>(read(spm_start), "x.model: no piece of the vocabulary is text");
    expect_error<FormatError>(read(spm_start + spm_piece("a", 0) + spm_blob(2, spm_number(3, 7))),
                              "x.model: model type 7 is not known");
    expect_error<FormatError>(read(spm_start + spm_piece("a", 0) + spm_blob(3, spm_blob(2, "abc"))),
                              "x.model: charsmap of 3 bytes is truncated");
    expect_error<FormatError>(read(spm_start + spm_piece("a", 0) + spm_piece("<0x41>", 0, 6)),
                              "x.model: byte piece 4 is not expected ('<0x41>', byte_fallback off)");
    expect_error<FormatError>(read(spm_start + spm_piece("a", 0) + spm_blob(2, spm_number(35, 1))),
                              "x.model: byte_fallback is on, but the piece of byte 0x00 is missing");
}

TEST(Sentencepiece, TheTokenThatEndsADocumentMustBeThere)
{
    const std::string model = spm_model(spm_piece("a", 0) + spm_piece("<end>", 0, 4), 2);
    TokenizerOptions options;
    options.eod = "<end>";
    EXPECT_EQ(make_sentencepiece_model(model, "x.model", options)->eod(), 4U);
    options.eod = "a";
    expect_error<ConfigError>(
        [&] { make_sentencepiece_model(model, "x.model", options); },
        "tokenizer 'x.model' has no special token 'a' to end a document with. name another with --eod");
}

TEST(Sentencepiece, SpecialTokensInTextFollowThePolicy)
{
    const std::string model = spm_model(spm_piece("a", 0) + spm_piece("<", 0) + spm_piece("\u2581", 0), 2);
    TokenizerOptions options;
    options.special_in_text = SpecialInText::match;
    EXPECT_EQ(spm_ids(*make_sentencepiece_model(model, "x.model", options), "a</s>a"), (Ids{5, 3, 2, 5, 3}));
    options.special_in_text = SpecialInText::error;
    const auto refusing = make_sentencepiece_model(model, "x.model", options);
    expect_error<FormatError>(
        [&] { spm_ids(*refusing, "a</s>a"); },
        "the text of special token '</s>' stands in the document");
}

TEST(DoubleArray, FindsWhatASortedListFinds)
{
    std::mt19937 draw(7);
    std::vector<std::string> words;
    for (int i = 0; i < 3000; ++i)
    {
        std::string word;
        for (unsigned n = draw() % 7 + 1; n > 0; --n)
        {
            word.push_back(static_cast<char>(draw() % (i % 2 == 0 ? 3 : 256)));
        }
        words.push_back(word);
    }
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::vector<std::pair<std::string_view, std::int32_t>> keys;
    for (std::size_t i = 0; i < words.size(); ++i) { keys.emplace_back(words[i], static_cast<std::int32_t>(i)); }
    const DoubleArray trie(keys);
    for (std::size_t i = 0; i < words.size(); ++i)
    {
        const auto match = trie.longest(words[i], 0);
        ASSERT_EQ(match.value, static_cast<std::int32_t>(i));
        ASSERT_EQ(match.length, words[i].size());
        std::string other = words[i] + static_cast<char>(draw());
        other[draw() % other.size()] = static_cast<char>(draw());
        std::size_t longest = 0;
        for (std::size_t n = 1; n <= other.size(); ++n)
        {
            if (std::binary_search(words.begin(), words.end(), other.substr(0, n))) { longest = n; }
        }
        ASSERT_EQ(trie.longest(other, 0).length, longest);
    }
}

TEST(Merger, LongStretchesMergeLikeShortOnes)
{
    // The same symbols once by the heap and once, from a table with a cut between the copies, in short stretches.
    std::mt19937 generator(3);
    const auto draw = [&] { return static_cast<std::uint32_t>(generator()); };
    MergeTable table(200);
    for (std::uint32_t i = 0; i < 200; ++i) { table.add(draw() % 12, draw() % 12, {draw() % 12, draw() % 5}); }
    Merger merger;
    for (int round = 0; round < 60; ++round)
    {
        std::vector<Symbol> word;
        for (unsigned n = draw() % 39 + 2; n > 0; --n) { word.push_back({draw() % 12, 1}); }
        std::vector<Symbol> copies, expected = word;
        for (int copy = 0; copy < 30; ++copy)
        {
            copies.insert(copies.end(), word.begin(), word.end());
            copies.push_back({Symbol::none, 1});
        }
        merger.merge(table, expected);
        merger.merge(table, copies);
        ASSERT_EQ(copies.size(), 30 * (expected.size() + 1));
        for (std::size_t i = 0; i < copies.size(); ++i)
        {
            const std::size_t at = i % (expected.size() + 1);
            ASSERT_EQ(copies[i].id, at == expected.size() ? Symbol::none : expected[at].id);
        }
    }
}

}  // namespace plimsoll
