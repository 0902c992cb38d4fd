#include <gtest/gtest.h>

#include "base/error.hpp"
#include "io/document_encoder.hpp"

namespace plimsoll
{

namespace
{

/// `bytes` with one special token, "<s>" = 257.
class MarkedTokenizer final : public Tokenizer
{
  public:
    MarkedTokenizer() { eod_ = 256; }
    std::string name() const override { return "marked"; }
    std::string description() const override { return ""; }
    std::int64_t vocab() const override { return 258; }
    std::string fingerprint() const override { return ""; }
    std::unique_ptr<TokenEncoder> make_encoder() const override { return bytes_->make_encoder(); }
    std::optional<std::uint32_t> special_id(std::string_view content) const override
    {
        if (content == "<s>") { return 257U; }
        return std::nullopt;
    }
    std::string decode(const std::uint32_t* ids, std::int64_t num) const override { return bytes_->decode(ids, num); }

  private:
    std::unique_ptr<Tokenizer> bytes_ = make_tokenizer("bytes");
};

Document text_document(std::string_view text)
{
    Document document;
    document.text = text;
    return document;
}

using Ids = std::vector<std::uint32_t>;
using Mask = std::vector<std::uint8_t>;

std::string encode_failure(const Document& document, EncodedDocuments& out)
{
    const MarkedTokenizer tokenizer;
    try
    {
        DocumentEncoder(tokenizer, LossMask::wanted).encode(document, out);
    }
    catch (const FormatError& error)
    {
        return error.what();
    }
    return "(no error)";
}

}  // namespace

TEST(DocumentEncoder, TextsFollowEachOtherWithTheirEnds)
{
    const MarkedTokenizer tokenizer;
    DocumentEncoder encoder(tokenizer, LossMask::none);
    EncodedDocuments out;
    EXPECT_EQ(encoder.encode(text_document("ab"), out), EncodedAs::document);
    EXPECT_EQ(encoder.encode(text_document(""), out), EncodedAs::empty);
    EXPECT_EQ(encoder.encode(text_document("c"), out), EncodedAs::document);
    EXPECT_EQ(out.ids, (Ids{'a', 'b', 256, 'c', 256}));
    EXPECT_TRUE(out.mask.empty());
    ASSERT_EQ(out.entries.size(), 2U);
    EXPECT_EQ(out.entries[0].end, 3);
    EXPECT_EQ(out.entries[1].end, 5);
    EXPECT_EQ(out.entries[0].text_bytes, 2);
    EXPECT_EQ(out.entries[0].hash, content_hash(text_document("ab")));
}

TEST(DocumentEncoder, PartsCountInTheLossAsTheySay)
{
    using Kind = DocumentPart::Kind;
    const MarkedTokenizer tokenizer;
    DocumentEncoder encoder(tokenizer, LossMask::wanted);
    EncodedDocuments out;
    Document document;
    document.parts = {{Kind::special, "<s>", false}, {Kind::text, "q", false}, {Kind::text, "ab", true}};
    EXPECT_EQ(encoder.encode(document, out), EncodedAs::document);
    EXPECT_EQ(out.ids, (Ids{257, 'q', 'a', 'b', 256}));
    EXPECT_EQ(out.mask, (Mask{0, 0, 1, 1, 1})) << "the end counts as the last part does";
    EXPECT_EQ(out.entries[0].text_bytes, 3) << "specials are no text";
    document.parts[2].trainable = false;
    EXPECT_EQ(encoder.encode(document, out), EncodedAs::unlabelled);
    EXPECT_EQ(encoder.encode(text_document("z"), out), EncodedAs::document);
    EXPECT_EQ(out.mask, (Mask{0, 0, 1, 1, 1, 1, 1})) << "what was not kept left no trace";
}

TEST(DocumentEncoder, ReadyIdsKeepTheirMaskAndEndOnce)
{
    const MarkedTokenizer tokenizer;
    DocumentEncoder encoder(tokenizer, LossMask::wanted);
    EncodedDocuments out;
    Document document;
    document.ids = {'a', 'b', 256};
    document.mask = {0, 1, 1};
    EXPECT_EQ(encoder.encode(document, out), EncodedAs::document);
    document.ids = {'c', 'd'};
    document.mask = {1, 0};
    EXPECT_EQ(encoder.encode(document, out), EncodedAs::document);
    EXPECT_EQ(out.ids, (Ids{'a', 'b', 256, 'c', 'd', 256}));
    EXPECT_EQ(out.mask, (Mask{0, 1, 1, 1, 0, 0}));
    EXPECT_EQ(out.entries[0].text_bytes, 2);
}

TEST(DocumentEncoder, WhatCannotBeEncodedLeavesNothing)
{
    EncodedDocuments out;
    Document document;
    document.parts = {{DocumentPart::Kind::text, "a", true}, {DocumentPart::Kind::special, "<x>", true}};
    EXPECT_EQ(encode_failure(document, out), "tokenizer 'marked' has no special token '<x>'");
    document = Document();
    document.ids = {1, 258};
    EXPECT_EQ(encode_failure(document, out), "token id 258 at position 1 is not below the vocabulary of 258");
    document.ids = {1, 2};
    document.mask = {1};
    EXPECT_EQ(encode_failure(document, out), "1 labels for 2 token ids");
    EXPECT_TRUE(out.ids.empty() && out.mask.empty() && out.entries.empty());
}

TEST(DocumentEncoder, HashIsOfTheContentAlone)
{
    Document parts;
    parts.parts = {{DocumentPart::Kind::text, "ab", true}};
    Document moved = text_document("ab");
    moved.line = 7;
    EXPECT_EQ(content_hash(text_document("ab")), content_hash(moved));
    EXPECT_NE(content_hash(text_document("ab")), content_hash(text_document("ba")));
    Document cut = parts;
    cut.parts = {{DocumentPart::Kind::text, "a", true}, {DocumentPart::Kind::text, "b", true}};
    EXPECT_NE(content_hash(parts), content_hash(cut));
}

}  // namespace plimsoll
