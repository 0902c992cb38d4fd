#include "base/run_file.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/error.hpp"
#include "base/text_file.hpp"

namespace plimsoll
{

namespace
{

bool is_space(char c) { return c == ' ' || c == '\t'; }

bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_key(const std::string& text)
{
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return is_name_char(c) || c == '-' || c == '.'; });
}

/// Reads the variable at text[at] == '$' and moves `at` behind it.
std::string expand_variable(const std::string& text, std::size_t& at, const std::string& origin)
{
    std::size_t first = at + 1;
    const bool braces = first < text.size() && text[first] == '{';
    if (braces) { ++first; }
    std::size_t end = first;
    while (end < text.size() && is_name_char(text[end])) { ++end; }
    if (end == first && !braces)
    {
        ++at;
        return "$";
    }
    const std::string name = text.substr(first, end - first);
    VALIDATE(!braces || (end < text.size() && text[end] == '}' && !name.empty()), ConfigError,
             "{}: '${{' is not closed. write ${{NAME}}", origin);
    const char* value = std::getenv(name.c_str());
    VALIDATE(value != nullptr, ConfigError,
             "{}: variable '{}' is not set. export it, or put the text into single quotes", origin, name);
    at = braces ? end + 1 : end;
    return value;
}

/// Cuts a line into words; stops at a comment.
class WordReader
{
  public:
    WordReader(const std::string& text, const std::string& origin, Variables variables)
        : text_(text),
          origin_(origin),
          variables_(variables)
    {
    }

    std::vector<std::string> read(bool comments)
    {
        while (at_ < text_.size())
        {
            const char c = text_[at_];
            const bool after_space = at_ == 0 || is_space(text_[at_ - 1]);
            if (comments && (c == '#' || c == ';') && after_space) { break; }
            if (is_space(c))
            {
                end_word();
                ++at_;
            }
            else if (c == '"' || c == '\'') { read_quoted(c); }
            else { read_plain(); }
        }
        end_word();
        return std::move(words_);
    }

  private:
    void end_word()
    {
        if (in_word_) { words_.push_back(std::move(word_)); }
        word_.clear();
        in_word_ = false;
    }

    void read_plain()
    {
        in_word_ = true;
        if (text_[at_] == '$' && variables_ == Variables::expand) { word_ += expand_variable(text_, at_, origin_); }
        else { word_ += text_[at_++]; }
    }

    void read_quoted(char quote)
    {
        in_word_ = true;
        ++at_;
        while (at_ < text_.size() && text_[at_] != quote)
        {
            if (quote == '"') { read_plain(); }
            else { word_ += text_[at_++]; }
        }
        VALIDATE(at_ < text_.size(), ConfigError, "{}: quote {} is not closed. close it on the same line", origin_,
                 quote);
        ++at_;
    }

    const std::string& text_;
    const std::string& origin_;
    Variables variables_;
    std::size_t at_ = 0;
    std::string word_;
    bool in_word_ = false;
    std::vector<std::string> words_;
};

/// State of reading one file.
class FileParser
{
  public:
    FileParser(std::string origin, std::string directory) : origin_(std::move(origin)), directory_(std::move(directory))
    {
    }

    std::vector<RunFileEntry> parse(const std::string& text)
    {
        VALIDATE(text.find('\0') == std::string::npos, ConfigError, "{} is not a text file (it holds zero bytes)",
                 origin_);
        std::size_t at = text.rfind("\xef\xbb\xbf", 0) == 0 ? 3 : 0;
        while (at < text.size())
        {
            std::size_t end = text.find('\n', at);
            if (end == std::string::npos) { end = text.size(); }
            std::string line = text.substr(at, end - at);
            if (!line.empty() && line.back() == '\r') { line.pop_back(); }
            at = end + 1;
            ++line_;
            where_ = fmt::format("{}:{}", origin_, line_);
            read_line(line);
        }
        return std::move(entries_);
    }

  private:
    void read_line(const std::string& line)
    {
        const std::size_t first = line.find_first_not_of(" \t");
        if (first == std::string::npos)
        {
            can_continue_ = false;
            return;
        }
        if (line[first] == '#' || line[first] == ';') { return; }
        if (first > 0) { read_continuation(line); }
        else if (line[0] == '[') { read_section(line); }
        else { read_entry(line); }
    }

    void read_continuation(const std::string& line)
    {
        VALIDATE(can_continue_, ConfigError,
                 "{}: indented line continues no value. sections and keys start in the first column", where_);
        const std::vector<std::string> words = WordReader(line, where_, Variables::expand).read(true);
        VALIDATE(words.size() < 2 || words[1] != "=", ConfigError,
                 "{}: indented line looks like a key ('{} = ...'). keys start in the first column", where_, words[0]);
        RunFileEntry& entry = entries_.back();
        for (const std::string& word : words)
        {
            if (!entry.words.empty()) { entry.text += " "; }
            entry.text += word;
            entry.words.push_back(word);
        }
    }

    void read_section(const std::string& line)
    {
        const std::size_t close = line.find(']');
        VALIDATE(close != std::string::npos, ConfigError, "{}: section '{}' is not closed. write [name]", where_, line);
        const std::string name = line.substr(1, close - 1);
        const std::vector<std::string> rest = WordReader(line.substr(close + 1), where_, Variables::keep).read(true);
        VALIDATE(is_key(name) && rest.empty(), ConfigError, "{}: '{}' is not a section. write [name]", where_, line);
        section_ = name;
        can_continue_ = false;
    }

    void read_entry(const std::string& line)
    {
        const std::size_t equals = line.find('=');
        std::string key = line.substr(0, equals);
        while (!key.empty() && is_space(key.back())) { key.pop_back(); }
        VALIDATE(equals != std::string::npos && is_key(key), ConfigError,
                 "{}: '{}' is neither [section] nor key = value", where_, line);
        VALIDATE(!section_.empty() || key == "include", ConfigError,
                 "{}: key '{}' stands before the first section. put it below its [section]", where_, key);
        RunFileEntry entry;
        entry.section = section_;
        entry.key = key;
        entry.file = origin_;
        entry.directory = directory_;
        entry.line = line_;
        const auto inserted = lines_.emplace(section_ + "." + key, line_);
        VALIDATE(inserted.second, ConfigError, "{}: key '{}' in [{}] stands twice (first in line {}). keep one", where_,
                 key, section_, inserted.first->second);
        entry.words = WordReader(line.substr(equals + 1), where_, Variables::expand).read(true);
        entry.text = fmt::format("{}", fmt::join(entry.words, " "));
        entries_.push_back(std::move(entry));
        can_continue_ = true;
    }

    std::string origin_;
    std::string directory_;
    std::string section_;
    std::string where_;
    int line_ = 0;
    bool can_continue_ = false;
    std::map<std::string, int> lines_;
    std::vector<RunFileEntry> entries_;
};

void read_with_includes(const std::filesystem::path& path, std::vector<std::string>& open,
                        std::vector<RunFileEntry>& result)
{
    const std::string text = load_text(path.string(), "run file");
    const std::string identity = std::filesystem::weakly_canonical(path).string();
    open.push_back(identity);
    const std::string directory = std::filesystem::absolute(path).lexically_normal().parent_path().string();
    const std::vector<RunFileEntry> own = FileParser(path.string(), directory).parse(text);
    for (const RunFileEntry& entry : own)
    {
        if (!entry.section.empty()) { continue; }
        VALIDATE(!entry.words.empty(), ConfigError, "{}: include names no file", entry.where());
        for (const std::string& word : entry.words)
        {
            const std::filesystem::path included = path.parent_path() / word;
            const std::string other = std::filesystem::weakly_canonical(included).string();
            VALIDATE(std::find(open.begin(), open.end(), other) == open.end(), ConfigError,
                     "{}: '{}' includes itself (directly or through others)", entry.where(), word);
            with_context(entry.where(), [&] { read_with_includes(included, open, result); });
        }
    }
    for (const RunFileEntry& entry : own)
    {
        if (!entry.section.empty()) { result.push_back(entry); }
    }
    open.pop_back();
}

}  // namespace

std::vector<RunFileEntry> read_run_file(const std::string& path)
{
    std::vector<std::string> open;
    std::vector<RunFileEntry> result;
    read_with_includes(path, open, result);
    return result;
}

std::vector<RunFileEntry> parse_run_file(const std::string& text, const std::string& origin,
                                         const std::string& directory)
{
    return FileParser(origin, directory).parse(text);
}

std::vector<std::string> split_words(const std::string& text, const std::string& origin, Variables variables)
{
    return WordReader(text, origin, variables).read(false);
}

std::string quote_word(const std::string& word)
{
    if (!word.empty() && word.find_first_of(" \t\"'#;$") == std::string::npos) { return word; }
    if (word.find('\'') == std::string::npos) { return "'" + word + "'"; }
    std::string result = "'";
    for (const char c : word)
    {
        if (c == '\'') { result += "'\"'\"'"; }
        else { result += c; }
    }
    return result + "'";
}

}  // namespace plimsoll
