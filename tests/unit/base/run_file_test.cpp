#include "base/run_file.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/suggest.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace plimsoll;
using plimsoll::testing::expect_error;
using plimsoll::testing::TempDir;

namespace
{

using Words = std::vector<std::string>;

Words words_of(const std::string& value)
{
    return parse_run_file("[s]\nk = " + value + "\n", "a.ini", "/d").at(0).words;
}

void write_bytes(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

}  // namespace

TEST(RunFile, NothingHasNoEntries)
{
    EXPECT_TRUE(parse_run_file("", "a.ini", "/").empty());
    EXPECT_TRUE(parse_run_file("\n\n# only\n; comments\n   # indented\n[section]\n", "a.ini", "/").empty());
}

TEST(RunFile, EntriesKnowTheirPlace)
{
    const auto entries = parse_run_file("# head\n[run]\nname = demo\n\n[layout]\ntp=2", "a.ini", "/d");
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0].section, "run");
    EXPECT_EQ(entries[0].key, "name");
    EXPECT_EQ(entries[0].text, "demo");
    EXPECT_EQ(entries[0].where(), "a.ini:3");
    EXPECT_EQ(entries[0].directory, "/d");
    EXPECT_EQ(entries[1].where(), "a.ini:6");
    EXPECT_EQ(entries[1].words, Words{"2"});
}

TEST(RunFile, CommentsStartAtLineStartOrAfterASpace)
{
    EXPECT_EQ(words_of("a#b;c # comment"), Words{"a#b;c"});
    EXPECT_EQ(words_of("a ; comment = x"), Words{"a"});
    EXPECT_EQ(words_of("a\t#comment"), Words{"a"});
    EXPECT_EQ(words_of("# all"), Words{});
}

TEST(RunFile, QuotesProtect)
{
    EXPECT_EQ(words_of("\"a b\" 'c # d' e"), (Words{"a b", "c # d", "e"}));
    EXPECT_EQ(words_of("a\"b c\"d"), Words{"ab cd"});
    EXPECT_EQ(words_of("''"), Words{""});
    EXPECT_EQ(words_of("'it''s'"), Words{"its"});
    EXPECT_EQ(words_of("\"it's\""), Words{"it's"});
}

TEST(RunFile, IndentedLinesContinue)
{
    const auto entries = parse_run_file("[s]\nk = a\n    b # one\n# between\n\tc\nnext = d\n", "a.ini", "/");
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0].words, (Words{"a", "b", "c"}));
    EXPECT_EQ(entries[0].text, "a b c");
    EXPECT_EQ(entries[1].where(), "a.ini:6");
    EXPECT_EQ(parse_run_file("[s]\nk =\n  a\n", "a.ini", "/")[0].words, Words{"a"});
}

TEST(RunFile, CrlfAndByteOrderMarkAreAccepted)
{
    const auto entries = parse_run_file("\xef\xbb\xbf[s]\r\nk = a\r\n  b\r\n", "a.ini", "/");
    ASSERT_EQ(entries.size(), 1u);
    EXPECT_EQ(entries[0].words, (Words{"a", "b"}));
}

TEST(RunFile, VariablesExpandOutsideSingleQuotes)
{
    ::setenv("PLIMSOLL_TEST_DIR", "/scratch/my data", 1);
    EXPECT_EQ(words_of("$PLIMSOLL_TEST_DIR/x"), Words{"/scratch/my data/x"});
    EXPECT_EQ(words_of("${PLIMSOLL_TEST_DIR}x"), Words{"/scratch/my datax"});
    EXPECT_EQ(words_of("\"$PLIMSOLL_TEST_DIR\""), Words{"/scratch/my data"});
    EXPECT_EQ(words_of("'$PLIMSOLL_TEST_DIR'"), Words{"$PLIMSOLL_TEST_DIR"});
    EXPECT_EQ(words_of("5$ $/"), (Words{"5$", "$/"}));
    ::unsetenv("PLIMSOLL_TEST_DIR");
    expect_error<ConfigError>(
        [] { words_of("$PLIMSOLL_TEST_DIR/x"); },
        "a.ini:2: variable 'PLIMSOLL_TEST_DIR' is not set. export it, or put the text into single "
        "quotes");
    expect_error<ConfigError>([] { words_of("${PLIMSOLL_TEST_DIR"); }, "a.ini:2: '${' is not closed. write ${NAME}");
}

TEST(RunFile, BrokenLinesNameTheirPlace)
{
    struct Row
    {
        const char* text;
        const char* message;
    };
    const Row rows[] = {
        {"[s]\nk\n", "a.ini:2: 'k' is neither [section] nor key = value"},
        {"[s]\n= x\n", "a.ini:2: '= x' is neither [section] nor key = value"},
        {"[s]\na b = x\n", "a.ini:2: 'a b = x' is neither [section] nor key = value"},
        {"[s\nk = 1\n", "a.ini:1: section '[s' is not closed. write [name]"},
        {"[s] x\n", "a.ini:1: '[s] x' is not a section. write [name]"},
        {"[]\n", "a.ini:1: '[]' is not a section. write [name]"},
        {"k = 1\n", "a.ini:1: key 'k' stands before the first section. put it below its [section]"},
        {"[s]\n  k = 1\n", "a.ini:2: indented line continues no value. sections and keys start in the first column"},
        {"[s]\nk = 1\n\n  2\n",
         "a.ini:4: indented line continues no value. sections and keys start in the first column"},
        {"[s]\nk = 1\n  l = 2\n",
         "a.ini:3: indented line looks like a key ('l = ...'). keys start in the first column"},
        {"[s]\nk = 'a\n", "a.ini:2: quote ' is not closed. close it on the same line"},
        {"[s]\nk = 1\nl = 2\nk = 3\n", "a.ini:4: key 'k' in [s] stands twice (first in line 2). keep one"},
        {"[s]\nk = 1\n[t]\n[s]\nk = 3\n", "a.ini:5: key 'k' in [s] stands twice (first in line 2). keep one"},
    };
    for (const Row& row : rows)
    {
        expect_error<ConfigError>([&] { parse_run_file(row.text, "a.ini", "/"); }, row.message);
    }
    expect_error<ConfigError>([] { parse_run_file(std::string("[s]\nk = \0x", 10), "a.ini", "/"); },
                              "a.ini is not a text file (it holds zero bytes)");
}

TEST(RunFile, AnyBytesEndInAnErrorOrEntries)
{
    // Every single-byte change of a small file: no crash, nothing but ConfigError.
    const std::string good = "[s]\nk = 'a b' $HOME \"c\"\n  d # e\n[t.u]\nl=1\n";
    for (std::size_t at = 0; at < good.size(); ++at)
    {
        for (int byte = 0; byte < 256; ++byte)
        {
            std::string text = good;
            text[at] = static_cast<char>(byte);
            try
            {
                parse_run_file(text, "a.ini", "/");
            }
            catch (const ConfigError&)
            {
                continue;
            }
        }
    }
}

TEST(RunFile, IncludedFilesComeFirstAndKeepTheirDirectory)
{
    const TempDir dir;
    std::filesystem::create_directory(dir / "sub");
    write_bytes(dir / "sub/base.ini", "[s]\nk = base\nl = base\n");
    write_bytes(dir / "a.ini", "include = sub/base.ini # first\n[s]\nk = own\n");
    const auto entries = read_run_file(dir / "a.ini");
    ASSERT_EQ(entries.size(), 3u);
    EXPECT_EQ(entries[0].text, "base");
    EXPECT_EQ(entries[0].directory, dir / "sub");
    EXPECT_EQ(entries[0].where(), (dir / "sub/base.ini") + ":2");
    EXPECT_EQ(entries[2].text, "own");
    EXPECT_EQ(entries[2].directory, dir.path());
}

TEST(RunFile, MissingAndCircularFilesAreErrors)
{
    const TempDir dir;
    expect_error<ConfigError>([&] { read_run_file(dir / "no.ini"); },
                              "cannot read run file '" + (dir / "no.ini") + "' (no such file or directory)");
    expect_error<ConfigError>([&] { read_run_file(dir.path()); },
                              "cannot read run file '" + dir.path() + "' (is a directory)");
    write_bytes(dir / "a.ini", "include = b.ini\n");
    expect_error<ConfigError>([&] { read_run_file(dir / "a.ini"); }, (dir / "a.ini") + ":1: cannot read run file '" +
                                                                         (dir / "b.ini") +
                                                                         "' (no such file or directory)");
    write_bytes(dir / "b.ini", "\ninclude = a.ini\n");
    expect_error<ConfigError>([&] { read_run_file(dir / "a.ini"); },
                              (dir / "a.ini") + ":1: " + (dir / "b.ini") +
                                  ":2: 'a.ini' includes itself (directly or through others)");
}

TEST(RunFile, QuotedWordsReadBack)
{
    for (const char* word : {"", "a", "a b", "#x", "a;b", "it's", "$HOME", "a\"b'c", "'", "/x/*.h5"})
    {
        EXPECT_EQ(words_of(quote_word(word)), Words{word}) << quote_word(word);
    }
}

TEST(Suggest, DistanceCountsChangesAndSwaps)
{
    EXPECT_EQ(edit_distance("", ""), 0);
    EXPECT_EQ(edit_distance("", "abc"), 3);
    EXPECT_EQ(edit_distance("micro-bacth", "micro-batch"), 1);
    EXPECT_EQ(edit_distance("micro_batch", "MICRO-batch"), 0);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3);  // Levenshtein's usual example
    EXPECT_EQ(nearest_name("stpes", {"tokens", "steps", "epochs"}), "steps");
    EXPECT_EQ(nearest_name("x", {}), "");
}
