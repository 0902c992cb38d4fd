#include "io/record_format.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace plimsoll
{

namespace
{

class RecordFormatTest : public ::testing::Test
{
  protected:
    std::string parse(const RecordOptions& options, std::string json)
    {
        RecordParser parser(options);
        const auto bytes = static_cast<std::int64_t>(json.size());
        json.append(64, ' ');
        document_ = {};
        document_.text = "left over";
        const std::string reason = parser.parse(json.data(), bytes, document_);
        words_.clear();
        for (const DocumentPart& part : document_.parts)
        {
            const char* kind = part.kind == DocumentPart::Kind::special ? "special" : "text";
            words_.push_back(fmt::format("{}{}:{}", part.trainable ? "+" : "-", kind, part.text));
        }
        EXPECT_TRUE(document_.text.empty());
        return reason;
    }

    static RecordOptions chat(ChatTemplate chat_template)
    {
        RecordOptions options;
        options.format = RecordFormat::chat;
        options.chat_template = chat_template;
        return options;
    }

    Document document_;
    std::vector<std::string> words_;
};

using RecordWords = std::vector<std::string>;

/// Ids of letters, one token for each of the given words (longest first), specials by name.
class WordTokenizer : public Tokenizer
{
  public:
    explicit WordTokenizer(std::vector<std::string> words) : words_(std::move(words)) { eod_ = 0; }

    std::string name() const override { return "words"; }
    std::string description() const override { return "words"; }
    std::int64_t vocab() const override { return 256 + static_cast<std::int64_t>(words_.size()); }
    std::string fingerprint() const override { return "f"; }
    std::unique_ptr<TokenEncoder> make_encoder() const override;
    std::optional<std::uint32_t> special_id(std::string_view content) const override
    {
        if (content == "<|im_start|>") { return 1; }
        return std::nullopt;
    }
    std::string decode(const std::uint32_t* ids, std::int64_t num) const override
    {
        std::string text;
        for (std::int64_t i = 0; i < num; ++i)
        {
            text += ids[i] < 256 ? std::string(1, static_cast<char>(ids[i])) : words_[ids[i] - 256];
        }
        return text;
    }
    const std::vector<std::string>& words() const { return words_; }

  private:
    std::vector<std::string> words_;
};

class WordEncoder : public TokenEncoder
{
  public:
    explicit WordEncoder(const std::vector<std::string>& words) : words_(words) {}
    void encode(std::string_view text, std::vector<std::uint32_t>& ids) override
    {
        while (!text.empty())
        {
            std::uint32_t id = static_cast<unsigned char>(text[0]);
            std::size_t bytes = 1;
            for (std::size_t i = 0; i < words_.size(); ++i)
            {
                if (words_[i].size() <= bytes || text.substr(0, words_[i].size()) != words_[i]) { continue; }
                id = 256 + static_cast<std::uint32_t>(i);
                bytes = words_[i].size();
            }
            ids.push_back(id);
            text.remove_prefix(bytes);
        }
    }

  private:
    const std::vector<std::string>& words_;
};

std::unique_ptr<TokenEncoder> WordTokenizer::make_encoder() const { return std::make_unique<WordEncoder>(words_); }

}  // namespace

TEST_F(RecordFormatTest, OfAPromptAndItsCompletionTheCompletionCounts)
{
    RecordOptions options;
    options.format = RecordFormat::prompt_completion;
    EXPECT_EQ(parse(options, R"({"completion": " 4", "prompt": "2 + 2 ="})"), "");
    EXPECT_EQ(words_, (RecordWords{"-text:2 + 2 =", "+text: 4"}));
    EXPECT_EQ(parse(options, R"({"prompt": "", "completion": ""})"), "");
    EXPECT_TRUE(words_.empty());
    EXPECT_EQ(parse(options, R"({"prompt": "x"})"), "no field 'completion'");
    EXPECT_EQ(parse(options, R"({"prompt": 1, "completion": ""})"), "field 'prompt' is not a string");
    EXPECT_EQ(parse(options, R"(["x"])"), "not a json object (an array)");
    EXPECT_EQ(parse(options, R"({"prompt": "x)"), "not valid json (unclosed string)");
    options.prompt_field = "question";
    EXPECT_EQ(parse(options, R"({"prompt": "x", "completion": "y"})"), "no field 'question'");
}

TEST_F(RecordFormatTest, OfAChatWhatTheAssistantSaysCountsWithItsEnd)
{
    const std::string json = R"({"messages": [{"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi "}, {"role": "assistant", "content": "\nhello\n"}]})";
    EXPECT_EQ(parse(chat(ChatTemplate::chatml), json), "");
    EXPECT_EQ(words_, (RecordWords{"-special:<|im_start|>", "-text:system\n", "-text:be brief", "-special:<|im_end|>",
                                   "-text:\n", "-special:<|im_start|>", "-text:user\n", "-text:hi ",
                                   "-special:<|im_end|>", "-text:\n", "-special:<|im_start|>", "-text:assistant\n",
                                   "+text:\nhello\n", "+special:<|im_end|>", "-text:\n"}));
    EXPECT_EQ(parse(chat(ChatTemplate::llama3), json), "");
    EXPECT_EQ(words_,
              (RecordWords{"-special:<|begin_of_text|>", "-special:<|start_header_id|>", "-text:system",
                           "-special:<|end_header_id|>", "-text:\n\n", "-text:be brief", "-special:<|eot_id|>",
                           "-special:<|start_header_id|>", "-text:user", "-special:<|end_header_id|>", "-text:\n\n",
                           "-text:hi", "-special:<|eot_id|>", "-special:<|start_header_id|>", "-text:assistant",
                           "-special:<|end_header_id|>", "-text:\n\n", "+text:hello", "+special:<|eot_id|>"}));
}

TEST_F(RecordFormatTest, ALlama3MessageIsStrippedOfWhatPythonCallsWhiteSpace)
{
    const std::string space =
        "\\t\\n\\u000b\\u001c \\u0085\\u00a0\\u1680\\u2000\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
    EXPECT_EQ(parse(chat(ChatTemplate::llama3),
                    R"({"messages": [{"role": "user", "content": ")" + space + "\\u200bä b\\u180e" + space + R"("}]})"),
              "");
    EXPECT_EQ(words_[5], "-text:\xE2\x80\x8Bä b\xE1\xA0\x8E");
    EXPECT_EQ(parse(chat(ChatTemplate::llama3), R"({"messages": [{"role": "user", "content": ")" + space + R"("}]})"),
              "");
    EXPECT_EQ(words_.size(), 6u);
}

TEST_F(RecordFormatTest, ABadChatSaysWhichMessage)
{
    const RecordOptions options = chat(ChatTemplate::chatml);
    EXPECT_EQ(parse(options, R"({"text": "x"})"), "no field 'messages'");
    EXPECT_EQ(parse(options, R"({"messages": "x"})"), "field 'messages' is not a list");
    EXPECT_EQ(parse(options, R"({"messages": ["x"]})"), "message 0: not a json object");
    EXPECT_EQ(parse(options, R"({"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": ""}]})"),
              "message 1: role 'tool' is not system, user or assistant");
    EXPECT_EQ(parse(options, R"({"messages": [{"role": "user", "content": null}]})"),
              "message 0: field 'content' is not a string");
    EXPECT_EQ(parse(options, R"({"messages": []})"), "");
    EXPECT_TRUE(words_.empty());
}

TEST_F(RecordFormatTest, ReadyIdsHaveLabels)
{
    RecordOptions options;
    options.format = RecordFormat::tokens;
    EXPECT_EQ(parse(options, R"({"input_ids": [5, 6, 7], "labels": [-100, 6, 7]})"), "");
    EXPECT_EQ(document_.ids, (std::vector<std::uint32_t>{5, 6, 7}));
    EXPECT_EQ(document_.mask, (std::vector<std::uint8_t>{0, 1, 1}));
    EXPECT_EQ(parse(options, R"({"input_ids": [5]})"), "");
    EXPECT_EQ(document_.mask, (std::vector<std::uint8_t>{1}));
    EXPECT_EQ(parse(options, R"({"input_ids": [5, 6], "labels": [6, -100]})"),
              "label 6 at position 0 is neither -100 nor the id 5 there (labels are not shifted)");
    EXPECT_EQ(parse(options, R"({"input_ids": [5, 6], "labels": [-100]})"), "1 labels for 2 token ids");
    EXPECT_EQ(parse(options, R"({"input_ids": [5], "labels": [5, 6]})"), "2 labels for 1 token ids");
    EXPECT_EQ(parse(options, R"({"input_ids": [5, -1]})"), "entry 1 of 'input_ids' is no token id");
    EXPECT_EQ(parse(options, R"({"input_ids": [4294967296]})"), "entry 0 of 'input_ids' is no token id");
    EXPECT_EQ(parse(options, R"({"input_ids": [1.5]})"), "entry 0 of 'input_ids' is no token id");
    EXPECT_EQ(parse(options, R"({"input_ids": [1], "labels": ["1"]})"), "entry 0 of 'labels' is no label");
    EXPECT_EQ(parse(options, R"({"ids": [1]})"), "no field 'input_ids'");
}

TEST_F(RecordFormatTest, ATemplateWhoseTokensAreMissingIsRefusedByName)
{
    const WordTokenizer tokenizer({});
    testing::expect_error<ConfigError>(
        [&] { check_special_tokens(chat(ChatTemplate::chatml), tokenizer); },
        "template chatml needs the special token '<|im_end|>', which tokenizer 'words' does not have. choose another "
        "--template or a tokenizer made for it");
    testing::expect_error<ConfigError>(
        [&] { check_special_tokens(chat(ChatTemplate::llama3), tokenizer); },
        "template llama3 needs the special token '<|begin_of_text|>', which tokenizer 'words' does not have. choose "
        "another --template or a tokenizer made for it");
    RecordOptions plain;
    plain.format = RecordFormat::prompt_completion;
    check_special_tokens(plain, tokenizer);
}

TEST_F(RecordFormatTest, NeighbouringTextsAreOneTextForTheTokenizer)
{
    const WordTokenizer tokenizer({"\n\n", "ab", "abc"});
    const auto encoder = tokenizer.make_encoder();
    const auto encoded = [&](const std::vector<DocumentPart>& parts)
    {
        std::vector<std::uint32_t> ids = {9};
        std::vector<std::uint8_t> mask = {0};
        encode_joined(tokenizer, *encoder, parts.data(), parts.size(), ids, &mask);
        std::string text;
        for (std::size_t i = 1; i < ids.size(); ++i)
        {
            text += (mask[i] == 1 ? "+" : "-") + tokenizer.decode(&ids[i], 1);
        }
        return text;
    };
    const auto part = [](std::string_view text, bool trainable) {
        return DocumentPart{DocumentPart::Kind::text, text, trainable};
    };
    EXPECT_EQ(encoded({part("x\n", false), part("y", true)}), "-x-\n+y");
    // The token over the border holds bytes of the completion.
    EXPECT_EQ(encoded({part("x\n", false), part("\ny", true)}), "-x+\n\n+y");
    EXPECT_EQ(encoded({part("xab", false), part("cy", true)}), "-x+abc+y");
    EXPECT_EQ(encoded({part("xa", false), part("b", true), part("cy", false)}), "-x-abc-y");
    EXPECT_EQ(encoded({part("x", false), part("", true), part("y", true)}), "-x+y");
    EXPECT_EQ(encoded({part("", false), part("xy", true)}), "+x+y");
}

}  // namespace plimsoll
