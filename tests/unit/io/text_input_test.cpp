#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/error.hpp"
#include "io/text_input.hpp"
#include "io/text_input_blocks.hpp"
#include "io/text_input_documents.hpp"
#include "io/utf8.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

namespace
{

using namespace std::string_literals;

const std::string replacement = "\xEF\xBF\xBD";

class TextInputTest : public ::testing::Test
{
  protected:
    std::string write(const std::string& name, const std::string& content)
    {
        std::ofstream(dir_ / name, std::ios::binary) << content;
        return dir_ / name;
    }

    std::vector<std::string> read(const std::string& name, const std::string& content, TextInputOptions options = {})
    {
        bad_.clear();
        TextInput input(find_input_files({write(name, content)}), options,
                        [this](const BadRecord& record) { bad_.push_back(record); });
        std::vector<std::string> documents;
        lines_.clear();
        Document document;
        while (input.next(document))
        {
            documents.emplace_back(document.text);
            lines_.push_back(document.line);
        }
        counts_ = input.counts();
        return documents;
    }

    std::string failure(const std::string& name, const std::string& content, TextInputOptions options = {})
    {
        try
        {
            read(name, content, options);
        }
        catch (const FormatError& error)
        {
            const std::string text = error.what();
            const std::string path = dir_ / name;
            EXPECT_EQ(text.substr(0, path.size()), path);
            return text.substr(path.size());
        }
        return "(no error)";
    }

    static TextInputOptions skipping()
    {
        TextInputOptions options;
        options.on_bad_record = BadRecordPolicy::skip;
        return options;
    }
    static TextInputOptions by(DocumentUnit unit)
    {
        TextInputOptions options;
        options.document = unit;
        return options;
    }

    plimsoll::testing::TempDir dir_;
    std::vector<BadRecord> bad_;
    std::vector<std::int64_t> lines_;
    TextInputCounts counts_;
};

using Texts = std::vector<std::string>;

}  // namespace

TEST_F(TextInputTest, EmptyFileHasNoLinesAndOneEmptyFileDocument)
{
    EXPECT_EQ(read("a.jsonl", ""), Texts{});
    EXPECT_EQ(read("a.txt", "", by(DocumentUnit::line)), Texts{});
    EXPECT_EQ(read("a.txt", "", by(DocumentUnit::blank_line)), Texts{});
    EXPECT_EQ(read("a.txt", "", by(DocumentUnit::file)), Texts{""});
}

TEST_F(TextInputTest, EmptyAndBlankDocumentsAreDocuments)
{
    EXPECT_EQ(read("a.jsonl", "{\"text\":\"\"}\n{\"text\":\"  \"}\n{\"text\":\"x\"}\n{\"text\":\"\"}\n"),
              (Texts{"", "  ", "x", ""}));
    EXPECT_EQ(read("a.txt", "\nx\n\n", by(DocumentUnit::line)), (Texts{"", "x", ""}));
}

TEST_F(TextInputTest, LinesOfJsonEndAtLineFeedAlone)
{
    // data.md 4.6 row 22: U+2028, U+2029, NEL, VT and FF are text.
    const std::string text = "a\xE2\x80\xA8"
                             "b\xE2\x80\xA9"
                             "c\xC2\x85"
                             "d";
    EXPECT_EQ(read("a.jsonl", "{\"text\":\"" + text + "\"}\r\n\r\n  \n{\"text\":\"e\\r\\nf\"}"),
              (Texts{text, "e\r\nf"}));
    EXPECT_EQ(lines_, (std::vector<std::int64_t>{1, 4}));
    EXPECT_EQ(read("a.txt", text + "\x0B\x0C\n", by(DocumentUnit::line)), Texts{text + "\x0B\x0C"});
}

TEST_F(TextInputTest, CarriageReturnsEndLinesButStayInsideFiles)
{
    EXPECT_EQ(read("a.txt", "a\r\nb\r\n", by(DocumentUnit::line)), (Texts{"a", "b"}));
    EXPECT_EQ(read("a.txt", "a\r\nb\r\n", by(DocumentUnit::file)), Texts{"a\r\nb\r\n"});
    EXPECT_EQ(read("a.txt", "a\r\nb\r\n\r\nc", by(DocumentUnit::blank_line)), (Texts{"a\r\nb", "c"}));
}

TEST_F(TextInputTest, ParagraphsEndAtBlankLinesOfAnyNumber)
{
    EXPECT_EQ(read("a.txt", "\n\na\nb\n \t\n\nc\n", by(DocumentUnit::blank_line)), (Texts{"a\nb", "c"}));
    EXPECT_EQ(lines_, (std::vector<std::int64_t>{3, 7}));
}

TEST_F(TextInputTest, ByteOrderMarkIsDroppedAtTheStartOfAFileOnly)
{
    const std::string mark = "\xEF\xBB\xBF";
    EXPECT_EQ(read("a.jsonl", mark + "{\"text\":\"a\"}\n"), Texts{"a"});
    EXPECT_EQ(read("a.jsonl", "{\"text\":\"" + mark + "a\"}\n"), Texts{mark + "a"});
    EXPECT_EQ(read("a.txt", mark + "a" + mark), Texts{"a" + mark});
    EXPECT_EQ(read("a.txt", mark, by(DocumentUnit::line)), Texts{});
    EXPECT_EQ(read("a.txt", mark + "a\n", by(DocumentUnit::line)), Texts{"a"});
}

TEST_F(TextInputTest, IllFormedUtf8BecomesOneReplacementPerMaximalSubpart)
{
    // Unicode 15, table 3-8, and Python's bytes.decode(errors="replace").
    EXPECT_EQ(read("a.txt", "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
              Texts{"a" + replacement + replacement + replacement + "b" + replacement + "c" + replacement +
                    replacement + "d"});
    EXPECT_EQ(counts_.invalid_utf8, 6);
    EXPECT_EQ(read("a.jsonl", "{\"text\":\"a\xC0\xAF\"}\n{\"text\":\"\xE2\x82\"}"),
              (Texts{"a" + replacement + replacement, replacement}));
    EXPECT_EQ(counts_.invalid_utf8, 3);
}

TEST(Utf8, ReplacesAsPythonDoesForAllShortSequences)
{
    // Surrogates, overlong forms, beyond U+10FFFF, truncated ends: expected strings by Python 3.11.
    const std::vector<std::pair<std::string, int>> cases =
        {{"\xED\xA0\x80", 3}, {"\xF4\x90\x80\x80", 4}, {"\xF0\x80\x80\x80", 4},
         {"\xE0\x80\x80", 3}, {"\xF0\x9F\x98", 1},     {"\xF0\x9F", 1},
         {"\xFF", 1},         {"\xC1\xBF", 2},         {"\xF5\x80", 2},
         {"\xE2\x28\xA1", 2}};
    for (const auto& entry : cases)
    {
        std::string out;
        EXPECT_EQ(replace_invalid_utf8(entry.first, out), entry.second);
        EXPECT_TRUE(is_valid_utf8(out));
    }
    std::string out;
    EXPECT_EQ(replace_invalid_utf8(
                  "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", out),
              0);
    EXPECT_EQ(out.size(), 22U);
}

TEST_F(TextInputTest, LoneSurrogatesBecomeReplacementsAndPairsStay)
{
    // data.md 4.6 row 11.
    EXPECT_EQ(read("a.jsonl", "{\"text\":\"\\ud83d\\ude00 \\ud83d \\ude00 \\ud83d\\ud83d\\ude00 \\\\ud83d \\uD83Dx\"}"),
              Texts{"\xF0\x9F\x98\x80 " + replacement + " " + replacement + " " + replacement +
                    "\xF0\x9F\x98\x80 \\ud83d " + replacement + "x"});
    EXPECT_EQ(counts_.lone_surrogates, 4);
}

TEST_F(TextInputTest, NulIsText)
{
    EXPECT_EQ(read("a.jsonl", "{\"text\":\"a\\u0000b\"}\n"), Texts{"a\0b"s});
    EXPECT_EQ(read("a.txt", "a\0b\n\0"s, by(DocumentUnit::line)), (Texts{"a\0b"s, "\0"s}));
}

TEST_F(TextInputTest, OtherFieldAndNestedValuesDoNotDisturb)
{
    TextInputOptions options;
    options.text_field = "body";
    EXPECT_EQ(read("a.jsonl", "{\"text\":1,\"x\":{\"body\":\"no\"},\"body\":\"yes\"}\n", options), Texts{"yes"});
    EXPECT_EQ(read("a.jsonl", "{\"body\":\"first\",\"body\":\"last\"}\n", options), Texts{"last"})
        << "as Python's json";
}

TEST_F(TextInputTest, BadLinesAreNamedWithFileLineAndReason)
{
    const std::string hint = ". mend it or use --on-bad-record skip";
    const std::string good = "{\"text\":\"a\"}\n";
    EXPECT_EQ(failure("a.jsonl", good + "{\"text\":\"b\n" + good), ":2: not valid json (unclosed string)" + hint);
    EXPECT_EQ(failure("a.jsonl", good + good + "{\"text\" \"b\"}\n"),
              ":3: not valid json (missing or superfluous brace, comma, colon or quote)" + hint);
    EXPECT_EQ(failure("a.jsonl", "{\"text\":\"a\"} {\"text\":\"b\"}\n"),
              ":1: not valid json (missing or superfluous brace, comma, colon or quote)" + hint);
    EXPECT_EQ(failure("a.jsonl", "{\"text\":\"a\",\"n\":01}\n"), ":1: not valid json (bad number)" + hint);
    EXPECT_EQ(failure("a.jsonl", "{\"text\":\"a\",\"n\":nul}\n"),
              ":1: not valid json (bad literal, known: true false null)" + hint);
    EXPECT_EQ(failure("a.jsonl", "{\"text\":\"a\\q\"}\n"), ":1: not valid json (bad escape in a string)" + hint);
    EXPECT_EQ(failure("a.jsonl", "{\"text\":\"a\tb\"}\n"),
              ":1: not valid json (control character inside a string)" + hint);
    EXPECT_EQ(failure("a.jsonl", "[1]\n"), ":1: not a json object (an array)" + hint);
    EXPECT_EQ(failure("a.jsonl", "{\"id\":1,\"url\":\"\"}\n"), ":1: no field 'text' (fields: id url)" + hint);
    EXPECT_EQ(failure("a.jsonl", "{}\n"), ":1: no field 'text' (the object is empty)" + hint);
    EXPECT_EQ(failure("a.jsonl", "{\"text\":null}\n"), ":1: field 'text' is null, not a string" + hint);
    EXPECT_EQ(failure("a.jsonl", "{\"text\":[\"a\"]}\n"), ":1: field 'text' is an array, not a string" + hint);
    EXPECT_EQ(failure("a.jsonl", good + "{\"text\":\"b"),
              ":2: not valid json (unclosed string), in a last line without line feed (truncated file?)" + hint);
}

TEST_F(TextInputTest, SkippedRecordsAreReportedWithTheirPlace)
{
    const std::string content = "{\"text\":\"a\"}\nnonsense\n{\"text\":\"b\"}\n{\"other\":1}\n{\"text\":\"c\"}\n{\"te";
    EXPECT_EQ(read("a.jsonl", content, skipping()), (Texts{"a", "b", "c"}));
    ASSERT_EQ(bad_.size(), 3U);
    EXPECT_EQ(counts_.bad_records, 3);
    EXPECT_EQ(bad_[0].file, dir_ / "a.jsonl");
    EXPECT_EQ(bad_[0].line, 2);
    EXPECT_EQ(bad_[0].offset, 13);
    EXPECT_EQ(bad_[1].line, 4);
    EXPECT_EQ(bad_[1].offset, static_cast<std::int64_t>(content.find("{\"other\"")));
    EXPECT_EQ(bad_[2].line, 6);
    EXPECT_EQ(bad_[2].offset, static_cast<std::int64_t>(content.find("{\"te", content.size() - 6)));
}

TEST_F(TextInputTest, LinesAcrossBufferBordersAreWhole)
{
    // Lengths around the reader's blocks of 1 MiB, and one line of several blocks.
    const std::int64_t chunk = TextInputOptions().block_bytes;
    std::string content;
    Texts expected;
    for (const std::int64_t length : {chunk - 1, chunk, chunk + 1, 3 * chunk + 7, std::int64_t{0}, std::int64_t{1}})
    {
        expected.emplace_back(static_cast<std::size_t>(length), static_cast<char>('a' + length % 7));
        content += expected.back() + "\n";
    }
    EXPECT_EQ(read("a.txt", content, by(DocumentUnit::line)), expected);
    EXPECT_EQ(counts_.bytes, static_cast<std::int64_t>(content.size()));
    std::string json;
    for (const std::string& text : expected) { json += "{\"text\":\"" + text + "\"}\n"; }
    EXPECT_EQ(read("a.jsonl", json), expected);
}

TEST_F(TextInputTest, OverlongRecordsAreBadRecordsInEveryUnit)
{
    TextInputOptions options = skipping();
    options.max_record_bytes = 20;
    const std::string longer(2 << 20, 'x');
    EXPECT_EQ(read("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"" + longer + "\"}\n{\"text\":\"b\"}\n" + longer, options),
              (Texts{"a", "b"}));
    ASSERT_EQ(bad_.size(), 2U);
    EXPECT_EQ(bad_[0].reason, "longer than --max-record-bytes 20");
    EXPECT_EQ(bad_[0].line, 2);
    EXPECT_EQ(bad_[1].line, 4);
    options.document = DocumentUnit::line;
    EXPECT_EQ(read("a.txt", std::string(21, 'x') + "\n" + std::string(20, 'y') + "\n", options),
              Texts{std::string(20, 'y')});
    options.document = DocumentUnit::blank_line;
    EXPECT_EQ(read("a.txt", "12345678901\n12345678901\n\n" + longer + "\n\nok\n", options), Texts{"ok"});
    EXPECT_EQ(bad_.size(), 2U);
    options.document = DocumentUnit::file;
    EXPECT_EQ(read("a.txt", longer, options), Texts{});
    EXPECT_EQ(bad_[0].reason, "2097152 bytes are longer than --max-record-bytes 20");
}

TEST_F(TextInputTest, SeveralFilesFollowEachOtherWithLinesCountedAnew)
{
    write("b.jsonl", "{\"text\":\"3\"}\n");
    write("a.jsonl", "{\"text\":\"1\"}\n{\"text\":\"2\"}\n");
    TextInput input(find_input_files({dir_ / "*.jsonl"}), {}, {});
    Document document;
    std::string seen;
    while (input.next(document)) { seen += fmt::format("{}:{} ", document.text, document.line); }
    EXPECT_EQ(seen, "1:1 2:2 3:1 ");
    EXPECT_EQ(input.counts().files, 2);
    EXPECT_EQ(input.counts().bytes, 39);
}

TEST_F(TextInputTest, FilesAreFoundOnceHoweverTheyAreNamed)
{
    const std::string a = write("a.txt", "x");
    const std::string b = write("b.txt", "y");
    ASSERT_EQ(::link(a.c_str(), (dir_ / "hard.txt").c_str()), 0);
    ASSERT_EQ(::symlink(b.c_str(), (dir_ / "soft.txt").c_str()), 0);
    const std::vector<InputFile> files = find_input_files({b, dir_ / "*.txt", dir_ / "./a.txt"});
    ASSERT_EQ(files.size(), 2U);
    EXPECT_EQ(files[0].path, b);
    EXPECT_EQ(files[1].path, a);
}

TEST_F(TextInputTest, UnreadableInputsAreRefusedBeforeTheFirstIsRead)
{
    const auto refusal = [&](const std::string& pattern) -> std::string
    {
        try
        {
            find_input_files({pattern});
        }
        catch (const Error& error)
        {
            return error.what();
        }
        return "(no error)";
    };
    EXPECT_EQ(refusal(dir_ / "none.txt"), "cannot read '" + (dir_ / "none.txt") + "' (no such file or directory)");
    EXPECT_EQ(refusal(dir_ / "*.txt"), "no file matches '" + (dir_ / "*.txt") + "'");
    EXPECT_EQ(refusal(dir_.path()),
              "cannot read '" + dir_.path() + "' (a directory). name its files: '" + dir_.path() + "/*.jsonl'");
    EXPECT_EQ(refusal(write("a.jsonl.gz", "")),
              "cannot read '" + (dir_ / "a.jsonl.gz") +
                  "' (its first bytes are neither gzip nor zstd). is it complete?");
    EXPECT_EQ(refusal(write("a.jsonl.xz", "")),
              "cannot read '" + (dir_ / "a.jsonl.xz") +
                  "' (xz is not available in this version). compress it with gzip or zstd");
    EXPECT_EQ(refusal(write("a.csv", "")),
              "cannot tell the format of '" + (dir_ / "a.csv") +
                  "' (endings known: .jsonl .ndjson .txt .text .md .parquet, the first five with .gz or .zst behind them "
                  "too). say --format txt, jsonl or parquet");
    EXPECT_EQ(refusal(write("a.parquet", "{}")),
              "cannot read '" + (dir_ / "a.parquet") + "' (it does not begin as Parquet does)");
    EXPECT_EQ(refusal(write("p.txt", "PAR1....")),
              "cannot read '" + (dir_ / "p.txt") + "' (its first bytes are those of Parquet). say --format parquet");
    EXPECT_EQ(refusal("-"), "cannot tell the format of standard input. say --format txt or jsonl");
    EXPECT_EQ(refusal("@" + write("empty.list", "# nothing\n\n")),
              "no input files (the list is empty). give them with --input");
    EXPECT_EQ(refusal(write("b.txt", "\xFF\xFE"
                                     "a\0"s)),
              "cannot read '" + (dir_ / "b.txt") + "' (UTF-16 by its byte order mark). convert it to UTF-8");
    ASSERT_EQ(::mkfifo((dir_ / "pipe.txt").c_str(), 0600), 0);
    EXPECT_EQ(refusal(dir_ / "pipe.txt"),
              "cannot read '" + (dir_ / "pipe.txt") +
                  "' (not a regular file). write it to a file first, or to standard input (--input -)");
}

TEST_F(TextInputTest, ListsNameFilesAndPatterns)
{
    const std::string a = write("a.txt", "x");
    const std::string b = write("b.txt", "y");
    const std::string list = write("in.list", "# two\r\n" + b + "\r\n\n" + (dir_ / "*.txt") + "\n");
    const std::vector<InputFile> files = find_input_files({"@" + list});
    ASSERT_EQ(files.size(), 2U);
    EXPECT_EQ(files[0].path, b);
    EXPECT_EQ(files[1].path, a);
}

TEST_F(TextInputTest, ReplacedRecordsKeepTheirPlace)
{
    TextInputOptions options;
    options.on_bad_record = BadRecordPolicy::replace;
    EXPECT_EQ(read("a.jsonl", "{\"text\":\"a\"}\nnonsense\n{\"text\":\"b\"}\n{\"te", options),
              (Texts{"a", replacement, "b", replacement}));
    EXPECT_EQ(lines_, (std::vector<std::int64_t>{1, 2, 3, 4}));
    EXPECT_EQ(bad_.size(), 2U);
}

TEST_F(TextInputTest, FieldsInsideObjectsAreNamedByTheirPath)
{
    TextInputOptions options;
    options.text_field = "a.b";
    EXPECT_EQ(read("a.jsonl", "{\"a\":{\"b\":\"in\"}}\n{\"a.b\":\"out\",\"a\":{\"b\":\"in\"}}\n", options), (Texts{"in", "out"}));
    EXPECT_EQ(failure("a.jsonl", "{\"a\":{\"c\":1}}\n", options),
              ":1: no field 'a.b' (fields: a). mend it or use --on-bad-record skip");
}

namespace
{

struct Seen
{
    std::string text;
    std::int64_t line = 0;
    std::int64_t offset = 0;
    bool operator==(const Seen& other) const { return text == other.text && line == other.line && offset == other.offset; }
};

/// All documents from a position on, and the positions between blocks.
std::vector<Seen> documents_from(const std::vector<InputFile>& files, const TextInputOptions& options, InputPosition from,
                                 std::vector<std::pair<InputPosition, std::size_t>>* borders = nullptr)
{
    BlockReader reader(files, options, from);
    BlockDocuments documents(files, options);
    TextBlock block;
    std::vector<Seen> seen;
    Document document;
    while (reader.next(block))
    {
        documents.start(block);
        while (documents.next(document)) { seen.push_back({std::string(document.text), document.line, document.offset}); }
        if (borders != nullptr) { borders->emplace_back(block.end, seen.size()); }
    }
    return seen;
}

const std::string awkward_text = "\xEF\xBB\xBF\n\nfirst\r\nmore\n \t\n\nsecond \xFF\n\n\nthis one is longer than thirty bytes\nand "
                                 "more\n\nx\n\n\n\nlast\nwithout end";

}  // namespace

TEST_F(TextInputTest, BlocksOfAnySizeHoldTheSameDocumentsAndAnyBorderIsAStart)
{
    std::string json;
    for (const char* line : {"{\"text\":\"a\"}", "", "nonsense", "{\"text\":\"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\"}", "{\"text\":\"c\"}"})
    {
        json += std::string(line) + "\n";
    }
    write("a.txt", awkward_text);
    write("b.txt", "");
    write("c.txt", "end\n");
    write("a.jsonl", json + "{\"text\":\"d\"}");
    write("b.jsonl", json);
    for (const DocumentUnit unit : {DocumentUnit::line, DocumentUnit::blank_line, DocumentUnit::file})
    {
        TextInputOptions options = by(unit);
        options.on_bad_record = BadRecordPolicy::replace;
        options.max_record_bytes = unit == DocumentUnit::file ? 200 : 30;
        const std::vector<InputFile> files = find_input_files({dir_ / (unit == DocumentUnit::file ? "*.jsonl" : "*.txt")});
        const std::vector<Seen> expected = documents_from(files, options, {});
        EXPECT_GT(expected.size(), 5U);
        for (const std::int64_t block_bytes : {1, 2, 3, 7, 20, 50, 1000})
        {
            options.block_bytes = block_bytes;
            std::vector<std::pair<InputPosition, std::size_t>> borders;
            EXPECT_TRUE(documents_from(files, options, {}, &borders) == expected) << block_bytes;
            for (const auto& border : borders)
            {
                const std::vector<Seen> rest = documents_from(files, options, border.first);
                EXPECT_TRUE(std::equal(rest.begin(), rest.end(), expected.begin() + static_cast<std::ptrdiff_t>(border.second),
                                       expected.end()))
                    << block_bytes << " from document " << border.second;
            }
        }
    }
}

TEST_F(TextInputTest, RangesOfAFileTogetherHoldEachRecordOnceWithItsLine)
{
    std::string content;
    for (int i = 0; i < 40; ++i) { content += std::string(static_cast<std::size_t>(i % 7), 'x') + "\n"; }
    const std::vector<InputFile> whole = find_input_files({write("a.txt", content + "end")});
    TextInputOptions options = by(DocumentUnit::line);
    options.max_record_bytes = 5;
    options.on_bad_record = BadRecordPolicy::replace;
    const std::vector<Seen> expected = documents_from(whole, options, {});
    ASSERT_TRUE(divisible(whole[0], DocumentUnit::line));
    for (std::int64_t parts = 1; parts < 12; ++parts)
    {
        std::vector<std::string> texts;
        std::vector<std::int64_t> bad_lines;
        for (std::int64_t part = 0; part < parts; ++part)
        {
            std::vector<InputFile> files = whole;
            files[0].begin = whole[0].bytes * part / parts;
            files[0].end = whole[0].bytes * (part + 1) / parts;
            TextInput input(files, options, [&](const BadRecord& record) { bad_lines.push_back(record.line); });
            Document document;
            while (input.next(document)) { texts.emplace_back(document.text); }
        }
        ASSERT_EQ(texts.size(), expected.size()) << parts;
        for (std::size_t i = 0; i < texts.size(); ++i) { EXPECT_EQ(texts[i], expected[i].text); }
        EXPECT_EQ(bad_lines, (std::vector<std::int64_t>{7, 14, 21, 28, 35}));
    }
}

}  // namespace plimsoll
